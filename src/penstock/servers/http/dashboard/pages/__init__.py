"""One module for each page, with its actions."""
