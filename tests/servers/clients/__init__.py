"""Real clients, unmodified, against a real server process."""
