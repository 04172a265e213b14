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

        self._series: dict[tuple[Route | None, str, int], tuple[Counter, Histogram]] = {}

    def note(self, route: Route | None, method: str, status: int, seconds: float) -> None:
        key = route, method if route is not None else "none", status
        series = self._series.get(key)
        if series is None:
            pattern = "none" if route is None else route.pattern
            found = self._count.labels(key[1], pattern, str(status)), self._seconds.labels(pattern)
            series = self._series[key] = found
        series[0].inc()
        series[1].observe(seconds)
