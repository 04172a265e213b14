"""The report: one HTML file with charts, tables and findings."""
