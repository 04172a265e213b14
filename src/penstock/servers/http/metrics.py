"""Metrics for Prometheus: counters of the engine, and of the requests to this server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.results import GroupStats
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.router import Route
from penstock.servers.http.sampler import QueueSample, Sample
from penstock.servers.http.state import http_state

GAUGES = {
    "available": "messages that are ready and were never handed out",
    "redo": "messages that are ready to be tried again",
    "held": "messages that are delayed, back off, or wait for their batch",
    "in_progress": "messages under a lease",
    "dead": "dead letters kept now",
    "lag": "messages of the log that the group has not read yet",
    "consumers": "registered consumers",
}


async def metrics(request: Request) -> Response:
    state, identity = http_state(request), identity_of(request)
    sample = await state.sampler.sample()
    seen = {name: one for name, one in sample.queues.items() if identity.may(Right.LOOK, name)}
    registry = CollectorRegistry()
    registry.register(_Queues(sample, seen, state.settings.metrics_queues))
    text = generate_latest(registry) + generate_latest(state.request_metrics.registry)
    return Response(text, headers={"content-type": CONTENT_TYPE_PLAIN_0_0_4})


class _Queues:
    def __init__(self, sample: Sample, queues: dict[str, QueueSample], most: int) -> None:
        self._sample = sample
        self._queues = queues
        self._most = most

    def collect(self) -> Iterable[Metric]:
        rows = list(self._rows())
        for name, about in GAUGES.items():
            family = GaugeMetricFamily(f"penstock_{name}", about, labels=["queue", "group"])
            for queue, group, stats in rows:
                family.add_metric([queue, group], getattr(stats, name))
            yield family
        yield self._ages(rows)
        yield self._endings(rows)
        yield self._failed_attempts(rows)
        yield from self._whole()

    def _rows(self) -> Iterator[tuple[str, str, GroupStats]]:
        for name, queue in islice(self._queues.items(), self._most):
            for group, stats in queue.groups.items():
                yield name, group, stats

    def _ages(self, rows: list[tuple[str, str, GroupStats]]) -> Metric:
        about = "how long the message has been ready that waits longest"
        ages = GaugeMetricFamily("penstock_oldest_age_seconds", about, labels=["queue", "group"])
        for queue, group, stats in rows:
            ages.add_metric([queue, group], stats.oldest_age_seconds or 0)
        return ages

    def _endings(self, rows: list[tuple[str, str, GroupStats]]) -> Metric:
        about = "how often a message has ended, by outcome; one that is redriven and ends again counts twice"
        endings = CounterMetricFamily("penstock_messages_finished", about, labels=["queue", "group", "outcome"])
        for queue, group, stats in rows:
            for outcome, count in stats.endings.items():
                endings.add_metric([queue, group, outcome], count)
        return endings

    def _failed_attempts(self, rows: list[tuple[str, str, GroupStats]]) -> Metric:
        about = "attempts that did not succeed (nak, reject, lease ended), whether retries were left or not"
        failed = CounterMetricFamily("penstock_failed_attempts", about, labels=["queue", "group"])
        for queue, group, stats in rows:
            failed.add_metric([queue, group], stats.failed_attempts)
        return failed

    def _whole(self) -> Iterator[Metric]:
        paused = GaugeMetricFamily("penstock_paused", "1 while a queue hands out nothing", labels=["queue"])
        for name, queue in islice(self._queues.items(), self._most):
            paused.add_metric([name], queue.info.policy.paused)
        yield paused
        yield GaugeMetricFamily("penstock_queues", "queues in the store", value=len(self._queues))
        left_out = max(0, len(self._queues) - self._most)
        yield GaugeMetricFamily("penstock_queues_left_out", "queues beyond http.metrics_queues", value=left_out)
        yield GaugeMetricFamily(
            "penstock_sample_seconds", "what reading these numbers took", value=self._sample.took_seconds
        )


ROUTES = [Route("GET", "/metrics", metrics, Right.LOOK)]
