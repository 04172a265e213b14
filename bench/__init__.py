"""Penstock and its peers, measured side by side in one run: `make bench`, or `python -m bench --help`."""
