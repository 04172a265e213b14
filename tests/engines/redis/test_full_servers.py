"""A server at maxmemory refuses sends; what ends and removes messages is the way back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

import penstock
from tests.conformance.clock import Clock
from tests.engines.redis.server import RedisServer


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer("--save", "", "--appendonly", "no") as server:
        with penstock.connect(server.url) as store:
            store.migrate()
        yield server


@contextmanager
def filled(server: RedisServer) -> Iterator[None]:
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        client.config_set("maxmemory", 1)
        try:
            yield
        finally:
            client.config_set("maxmemory", 0)


@pytest.fixture
def full(server: RedisServer, request: pytest.FixtureRequest) -> Iterator[penstock.Queue]:
    """A queue on a full server: one dead letter, three messages in flight, six ready."""
    with penstock.connect(f"{server.url}?prefix={request.node.name}") as store:
        queue = store.queue("orders")
        queue.send_many(range(10))
        queue.receive()[0].reject("bad")
        queue.receive(limit=3)
        with filled(server):
            with pytest.raises(penstock.StoreFull, match="maxmemory"):
                queue.send(11)
            yield queue


def test_a_full_server_still_delivers_and_settles(full: penstock.Queue) -> None:
    one, two, three, four = full.receive(limit=4)
    one.ack()
    two.nak("later", delay_seconds=0)
    three.extend(60)
    assert full.ack_many([three, four]) == 2
    assert full.stats("default").done == 3


def test_a_full_server_can_be_emptied(full: penstock.Queue) -> None:
    assert full.purge() == 1
    assert full.remove([message.id for message in full.peek(limit=2)]) == 2
    assert full.trim(keep=4) > 0
    assert full.flush() == 4
    full.delete()


def test_a_full_server_is_trimmed_although_a_schedule_cannot_send(server: RedisServer) -> None:
    clock = Clock()
    with penstock.connect(f"{server.url}?prefix=scheduled", clock=clock) as store:
        queue = store.queue("orders", history_seconds=60)
        queue.send(1)
        queue.receive()[0].ack()
        store.sweep()
        store.schedule("nightly", "0 3 * * *", "orders", {})
        clock.advance(seconds=86_400)
        with filled(server), pytest.raises(penstock.StoreFull):
            store.sweep()
        assert queue.count() == 0
