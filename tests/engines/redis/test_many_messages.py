"""One call of a function stops every client of the server, so its commands grow with what it was asked for, and no
faster."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis

import penstock
from tests.engines.redis.server import RedisServer

MESSAGES = 1_000


@pytest.fixture
def server() -> Iterator[RedisServer]:
    with RedisServer("--save", "", "--appendonly", "no") as server:
        with penstock.connect(server.url) as store:
            store.migrate()
        yield server


def commands(server: RedisServer) -> int:
    """How many commands the server has run, also those of functions."""
    with redis.Redis(unix_socket_path=str(server.socket)) as client:
        return sum(command["calls"] for command in client.info("commandstats").values())


def test_removing_a_message_costs_the_same_however_many_were_removed(server: RedisServer) -> None:
    with penstock.connect(server.url) as store:
        queue = store.queue("orders")
        ids = queue.send_many(range(MESSAGES))
        queue.settle([penstock.Nak(one, "busy", 0) for one in queue.receive(limit=MESSAGES // 2)])
        before = commands(server)
        assert queue.remove(ids) == MESSAGES
        assert commands(server) - before < 100 * MESSAGES
        assert queue.stats("default").total == 0
