"""Prometheus metrics of a worker. Needs the extra `metrics`.

Counts of the store (waiting messages, dead letters) are exported by the server: if every worker reported them, sums
would be wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import InvalidInput, MissingExtra
from penstock.domain.lifecycle import Event
from penstock.domain.validation import check_integer
from penstock.workers.lease_batch import AnyDelivery
from penstock.workers.source import QueueSource

if TYPE_CHECKING:
    from penstock.workers.worker import Worker

try:
    import prometheus_client
    from prometheus_client.core import GaugeMetricFamily
except ImportError:  # pragma: no cover  # tried in a test, in a process of its own
    prometheus_client = None  # type: ignore[assignment]  # the extra is not installed

SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1800)
LABELS = ("queue", "group")


class Metrics:
    """Give it to a worker, `Worker(..., observer=Metrics())`, or start `penstock worker --metrics-port 9464`."""

    def __init__(self, registry: Any = None) -> None:
        if prometheus_client is None:
            raise MissingExtra("metrics need prometheus-client: pip install 'penstock-queue[metrics]'")
        self.registry = prometheus_client.REGISTRY if registry is None else registry
        made: dict[str, Any] = {"registry": self.registry}
        self._received = prometheus_client.Counter("penstock_received", "Messages received.", LABELS, **made)
        self._settled = prometheus_client.Counter(
            "penstock_settled", "Messages settled, by settlement.", (*LABELS, "settlement"), **made
        )
        self._lost = prometheus_client.Counter("penstock_leases_lost", "Leases that others took over.", LABELS, **made)
        self._handled = prometheus_client.Histogram(
            "penstock_handler_seconds", "How long handlers ran.", LABELS, buckets=SECONDS, **made
        )

    def received(self, source: QueueSource, count: int) -> None:
        self._received.labels(source.name, source.group).inc(count)

    def finished(self, source: QueueSource, delivery: AnyDelivery, event: Event, seconds: float) -> None:
        self._settled.labels(source.name, source.group, str(event)).inc()
        self._handled.labels(source.name, source.group).observe(seconds)

    def lost(self, source: QueueSource, count: int) -> None:
        self._lost.labels(source.name, source.group).inc(count)

    def watch(self, worker: Worker) -> None:
        """Also export the state of the worker at each scrape."""
        self.registry.register(StatusCollector(worker))

    def serve(self, host: str, port: int) -> int:
        """Serve scrapes in the background; returns the port, which the system chooses if 0 is given."""
        check_integer("port", port, 0, 65_535)
        try:
            server, _ = prometheus_client.start_http_server(port, host, self.registry)
        except OSError as error:
            raise InvalidInput(f"metrics cannot be served on {host}:{port}: {error.strerror or error}") from None
        return int(server.server_port)


class StatusCollector:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def collect(self) -> Iterable[Any]:
        running = GaugeMetricFamily("penstock_handlers_running", "Handlers that run now.", labels=LABELS)
        waiting = GaugeMetricFamily("penstock_prefetched", "Messages that wait in this worker.", labels=LABELS)
        stuck = GaugeMetricFamily("penstock_handlers_stuck", "Handlers given up that still run.", labels=LABELS)
        for one in self._worker.status():
            stuck.add_metric([one.queue, one.group], one.stuck)
            running.add_metric([one.queue, one.group], one.running)
            waiting.add_metric([one.queue, one.group], one.waiting)
        return [running, waiting, stuck]
