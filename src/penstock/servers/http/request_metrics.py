"""Counts and durations of HTTP requests, for the metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, HistogramMetricFamily, Metric

from penstock.servers.http.router import Route

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)


class _Times:
    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.seconds = 0.0


class RequestMetrics:
    """Counted by route, not by path: clients choose paths, and must not create series.

    Plain numbers of one event loop, turned into metrics on a scrape.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        self._counts: dict[tuple[Route | None, str, int], int] = {}
        self._times: dict[Route | None, _Times] = {}

    def note(self, route: Route | None, method: str, status: int, seconds: float) -> None:
        key = route, method if route is not None else "none", status
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = _Times()
        times.counts[bisect_left(BUCKETS, seconds)] += 1
        times.seconds += seconds

    def collect(self) -> Iterator[Metric]:
        counts = CounterMetricFamily(
            "penstock_http_requests", "requests answered", labels=["method", "route", "status"]
        )
        for (route, method, status), count in self._counts.items():
            counts.add_metric([method, _pattern(route), str(status)], count)
        yield counts
        about = "time to answer, waiting for messages included"
        histogram = HistogramMetricFamily("penstock_http_request_seconds", about, labels=["route"])
        for pattern, times in _by_pattern(self._times).items():
            bounds = [*map(str, map(float, BUCKETS)), "+Inf"]
            reached = list(zip(bounds, accumulate(times.counts), strict=True))
            histogram.add_metric([pattern], reached, times.seconds)
        yield histogram


def _by_pattern(several: dict[Route | None, _Times]) -> dict[str, _Times]:
    """A path may have several methods, each a route of its own."""
    together: dict[str, _Times] = {}
    for route, times in several.items():
        one = together.setdefault(_pattern(route), _Times())
        one.counts = [mine + more for mine, more in zip(one.counts, times.counts, strict=True)]
        one.seconds += times.seconds
    return together


def _pattern(route: Route | None) -> str:
    return "none" if route is None else route.pattern
