"""Logs, metrics and traces of a worker."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import prometheus_client
import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

import penstock
from penstock import InvalidInput
from penstock.workers.logs import JsonFormatter, MessageFilter
from penstock.workers.metrics import Metrics

# -- logs --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """The records as a program with JSON logs writes them."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(MessageFilter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_log_records_of_a_handler_carry_its_message(store: penstock.Store, lines: io.StringIO, kind: str) -> None:
    def handle(delivery: penstock.Delivery) -> None:
        logging.getLogger("shop").info("packing %s", delivery.json()["order"])
        raise ValueError("no room")

    async def handle_async(delivery: penstock.AsyncDelivery) -> None:
        await asyncio.sleep(0)
        logging.getLogger("shop").info("packing %s", delivery.json()["order"])
        raise ValueError("no room")

    queue = store.queue("orders")
    ids = queue.send_many([{"order": number} for number in range(3)])
    penstock.Worker(store, {"orders": handle if kind == "thread" else handle_async}).run(once=True)
    records = [json.loads(line) for line in lines.getvalue().splitlines()]
    packing = {record["message_id"]: record for record in records if record["logger"] == "shop"}
    assert {message: record["message"] for message, record in packing.items()} == {
        message: f"packing {number}" for number, message in enumerate(ids)
    }
    failures = [record for record in records if record["message"].startswith("nak of message")]
    assert sorted(record["message_id"] for record in failures) == sorted(ids)
    assert "ValueError: no room" in failures[0]["error"]


# -- metrics -----------------------------------------------------------------------------------------------------------


def test_metrics_count_settlements(store: penstock.Store) -> None:
    registry = prometheus_client.CollectorRegistry()
    metrics = Metrics(registry)

    def handle(delivery: penstock.Delivery) -> None:
        if delivery.json() == "bad":
            raise penstock.Reject("bad")

    store.queue("orders").send_many(["good", "bad", "good"])
    worker = penstock.Worker(store, {"orders": handle}, observer=metrics)
    metrics.watch(worker)
    worker.run(once=True)
    labels = {"queue": "orders", "group": "default"}

    def value(name: str, **more: str) -> float | None:
        return registry.get_sample_value(name, {**labels, **more})

    assert value("penstock_received_total") == 3
    assert value("penstock_settled_total", settlement="ack") == 2
    assert value("penstock_settled_total", settlement="reject") == 1
    assert value("penstock_handler_seconds_count") == 3
    assert value("penstock_handlers_running") == 0


def test_metrics_count_settlements_made_by_the_handler(store: penstock.Store) -> None:
    registry = prometheus_client.CollectorRegistry()
    store.queue("orders").send("bad")
    handlers = {"orders": lambda delivery: delivery.reject("bad")}
    worker = penstock.Worker(store, handlers, observer=Metrics(registry))
    worker.run(once=True)
    labels = {"queue": "orders", "group": "default"}
    assert registry.get_sample_value("penstock_settled_total", {**labels, "settlement": "reject"}) == 1
    assert registry.get_sample_value("penstock_settled_total", {**labels, "settlement": "ack"}) is None


# -- traces ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def exporter() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter: InMemorySpanExporter) -> TracerProvider:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def spans(exporter: InMemorySpanExporter) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for span in exporter.get_finished_spans():
        found.setdefault(span.name, []).append(span)
    return found


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_one_trace_goes_from_the_send_to_the_handler(
    store: penstock.Store, provider: TracerProvider, exporter: InMemorySpanExporter, kind: str
) -> None:
    penstock.trace(store, provider=provider)
    queue = store.queue("orders")
    with provider.get_tracer("shop").start_as_current_span("checkout"):
        message = queue.send({"order": 1}, headers={"shop": "north"})

    def handle(delivery: penstock.Delivery) -> None:
        with provider.get_tracer("shop").start_as_current_span("pack"):
            raise ValueError("no room")

    async def handle_async(delivery: penstock.AsyncDelivery) -> None:
        handle(delivery)  # type: ignore[arg-type]  # only what both have is used

    penstock.Worker(store, {"orders": handle if kind == "thread" else handle_async}).run(once=True)
    found = spans(exporter)
    (checkout,), (send,), (process,), (pack,) = (
        found[name] for name in ("checkout", "send orders", "process orders", "pack")
    )
    assert len({span.context.trace_id for span in (checkout, send, process, pack)}) == 1
    assert send.parent.span_id == checkout.context.span_id
    assert process.parent.span_id == send.context.span_id == process.links[0].context.span_id
    assert pack.parent.span_id == process.context.span_id
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert queue.find(message).headers["shop"] == "north"
    assert dict(process.attributes) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.consumer.group.name": "default",
        "messaging.client.id": process.attributes["messaging.client.id"],
        "messaging.message.id": message,
        "messaging.message.body.size": len(b'{"order":1}'),
        "error.type": "ValueError",
    }
    assert not process.status.is_ok
    assert send.attributes["messaging.message.id"] == message


def test_messages_of_one_send_have_contexts_of_their_own_and_a_batch_is_linked_to_all(
    store: penstock.Store, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    penstock.trace(store, provider=provider, parents=False)
    queue = store.queue("orders")
    queue.send_many([b"1", b"2", b"3"])
    app = penstock.App()
    app.add("orders", lambda several: None, batch_size=3)
    penstock.Worker(store, app).run(once=True)
    found = spans(exporter)
    (send,), (process,) = found["send orders"], found["process orders"]
    created = {span.context.span_id for span in found["create orders"]}
    assert (send.kind, send.attributes["messaging.batch.message_count"], len(created)) == (SpanKind.CLIENT, 3, 3)
    assert {link.context.span_id for link in process.links} == created
    assert process.parent is None


def test_a_send_that_fails_ends_its_span_with_the_error(
    store: penstock.Store, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    penstock.trace(store, provider=provider)
    queue = store.queue("orders", max_payload_bytes=10)
    with pytest.raises(penstock.PayloadTooLarge):
        queue.send(b"x" * 11)
    assert spans(exporter)["send orders"][0].attributes["error.type"] == "PayloadTooLarge"


def test_an_async_store_carries_the_trace_as_well(
    url: str, store: penstock.Store, provider: TracerProvider, exporter: InMemorySpanExporter
) -> None:
    async def send() -> None:
        async with await penstock.connect_async(url) as other:
            penstock.trace(other, provider=provider)
            await (await other.queue("orders")).send(b"x")

    asyncio.run(send())
    (delivery,) = store.queue("orders").receive()
    assert f"{spans(exporter)['send orders'][0].context.span_id:016x}" in delivery.headers["traceparent"]


@pytest.mark.parametrize(
    ("hidden", "code", "told"),
    [
        ("opentelemetry", "penstock.trace(penstock.connect('sqlite:///:memory:'))", "penstock-queue[tracing]"),
        ("prometheus_client", "from penstock.workers.metrics import Metrics; Metrics()", "penstock-queue[metrics]"),
    ],
)
def test_a_missing_extra_says_what_to_install(hidden: str, code: str, told: str) -> None:
    program = f"import sys; sys.modules[{hidden!r}] = None; import penstock; {code}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "MissingExtra" in ended.stderr
    assert told in ended.stderr


def test_an_invalid_metrics_port_is_refused() -> None:
    with pytest.raises(InvalidInput, match="port must be between 0 and 65535, not 99999"):
        Metrics().serve("127.0.0.1", 99_999)
