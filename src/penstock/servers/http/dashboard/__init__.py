"""The dashboard: pages rendered on the server, with live regions.

`pages` has a module for each page, `history` keeps samples for charts and serves all viewers, `renderer` renders
templates. Templates escape everything: payloads and names are data.
"""

from penstock.servers.http.dashboard.routes import ROUTES, error_page, make_history

__all__ = ["ROUTES", "error_page", "make_history"]
