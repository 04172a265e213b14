"""Members of a batch that end, or are sent, in open transactions: nobody waits for them, and the batch ends once."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from penstock import Delivery, Queue, Store

ACK = "select penstock.ack('orders', %s, %s)"
SEND = "select penstock.send('orders', '4', batch => 'b')"


@pytest.fixture
def clients(postgres_url: str) -> Iterator[list[psycopg.Connection]]:
    """Clients with a transaction each, who would rather fail than wait."""
    connections = [psycopg.connect(postgres_url, options="-c statement_timeout=3s") for _ in range(2)]
    yield connections
    for connection in connections:
        connection.close()


def started(queue: Queue, count: int) -> list[Delivery]:
    """The members of a running batch, each received by itself."""
    batch = queue.batch("b")
    batch.set_end("end")
    for number in range(count):
        batch.send(number)
    batch.start()
    return [queue.receive()[0] for _ in range(count)]


def ack(client: psycopg.Connection, delivery: Delivery) -> None:
    client.execute(ACK, [delivery.id, delivery.token])


def ended(queue: Queue) -> list[bytes]:
    return [delivery.payload for delivery in queue.receive(limit=10)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_two_open_acks_end_a_batch_once(
    queue: Queue, clients: list[psycopg.Connection], order: tuple[int, int]
) -> None:
    for client, delivery in zip(clients, started(queue, 2), strict=True):
        ack(client, delivery)
    clients[order[0]].commit()
    assert ended(queue) == []
    clients[order[1]].commit()
    assert ended(queue) == [b'"end"']
    assert queue.batch("b").info().state == "finished"


@pytest.mark.parametrize("undone", [0, 1])
def test_an_ack_that_is_undone_keeps_the_batch_running(
    queue: Queue, clients: list[psycopg.Connection], undone: int
) -> None:
    deliveries = started(queue, 2)
    for client, delivery in zip(clients, deliveries, strict=True):
        ack(client, delivery)
    clients[undone].rollback()
    clients[1 - undone].commit()
    assert ended(queue) == []
    deliveries[undone].ack()
    assert ended(queue) == [b'"end"']


def test_a_sweep_ends_what_was_left_to_it(store: Store, queue: Queue, clients: list[psycopg.Connection]) -> None:
    for client, delivery in zip(clients, started(queue, 2), strict=True):
        ack(client, delivery)
    for client in clients:
        client.commit()
    store.sweep()
    assert queue.batch("b").info().state == "finished"
    store.sweep()
    assert ended(queue) == [b'"end"']


def test_an_open_ack_does_not_stop_a_send(queue: Queue, clients: list[psycopg.Connection]) -> None:
    deliveries = started(queue, 2)
    ack(clients[0], deliveries[0])
    clients[1].execute(SEND)
    clients[1].commit()
    deliveries[1].ack()
    clients[0].commit()
    (late,) = queue.receive()
    assert late.payload == b"4"
    assert ended(queue) == []
    late.ack()
    assert ended(queue) == [b'"end"']


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_an_open_send_does_not_stop_the_last_ack(queue: Queue, clients: list[psycopg.Connection], end: str) -> None:
    (delivery,) = started(queue, 1)
    clients[1].execute(SEND)
    ack(clients[0], delivery)
    clients[0].commit()
    assert ended(queue) == []
    getattr(clients[1], end)()
    if end == "commit":
        (late,) = queue.receive()
        assert late.payload == b"4"
        assert queue.batch("b").info().state == "running"
        late.ack()
    assert ended(queue) == [b'"end"']


def test_an_open_ack_does_not_stop_a_cancellation(queue: Queue, clients: list[psycopg.Connection]) -> None:
    deliveries = started(queue, 2)
    ack(clients[0], deliveries[0])
    assert queue.batch("b").cancel().state == "cancelling"
    deliveries[1].ack()
    clients[0].commit()
    assert ended(queue) == []
    assert queue.batch("b").info().state == "cancelled"


def test_a_crowd_that_ends_all_members_at_once_ends_the_batch_once(store: Store, queue: Queue) -> None:
    for turn in range(10):
        batch = queue.batch(f"crowd {turn}")
        batch.set_end("end")
        for number in range(12):
            batch.send(number)
        batch.start()
        deliveries = queue.receive(limit=12)
        assert len(deliveries) == 12
        with ThreadPoolExecutor(6) as threads:
            list(threads.map(lambda delivery: delivery.ack(), deliveries))
        (end,) = queue.receive(limit=10)
        assert end.payload == b'"end"'
        end.ack()
    assert queue.receive() == []
