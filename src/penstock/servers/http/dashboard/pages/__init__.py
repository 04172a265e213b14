"""One module for each page: what it reads, and what can be done on it."""
