"""What the server has answered, counted for its metrics."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from penstock.servers.http.routing import Route

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class Answers:
    """What the server has answered, by route and not by path: strangers choose paths, and must not choose series."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._count = Counter(
            "penstock_http_requests", "requests answered", ["method", "route", "status"], registry=self.registry
        )
        self._seconds = Histogram(
            "penstock_http_request_seconds",
            "time to answer, waiting for messages included",
            ["route"],
            buckets=BUCKETS,
            registry=self.registry,
        )

    def note(self, route: Route | None, method: str, status: int, seconds: float) -> None:
        pattern = "none" if route is None else route.pattern
        self._count.labels(method if route is not None else "none", pattern, str(status)).inc()
        self._seconds.labels(pattern).observe(seconds)
