"""The dashboard: pages made on the server, with small live regions.

`pages` has a module for each page, `history` remembers samples for charts and serves all viewers, `rendering` turns
templates into answers. What a page shows of messages is data, whatever it says: templates escape everything.
"""

from penstock.servers.http.dashboard.entry import ROUTES, error_page, make_history

__all__ = ["ROUTES", "error_page", "make_history"]
