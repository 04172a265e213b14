"""The report: one HTML file that tells people what happened, with pictures and in plain words."""
