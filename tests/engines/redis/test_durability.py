"""What a call waits for, and what a killed server still has."""

from __future__ import annotations

import pytest

import penstock
from tests.engines.redis.server import RedisServer

WRITTEN = ("--save", "", "--appendonly", "yes", "--appendfsync", "always")


def test_what_was_sent_to_the_disk_survives_a_kill() -> None:
    with RedisServer(*WRITTEN) as server:
        with penstock.connect(f"{server.url}?durability=aof") as store:
            store.migrate()
            queue = store.queue("orders")
            sent = queue.send_many([{"order": number} for number in range(100)])
            assert len(queue.receive(limit=40)) == 40
            queue.ack_many(queue.receive(limit=30))
            server.kill()
            with pytest.raises(penstock.StoreUnavailable):
                queue.send("nobody is there")
            server.start()
            stats = queue.stats(group="default")
            assert (stats.total, stats.done, stats.in_progress, stats.available) == (100, 30, 40, 30)
            assert {one.id for one in queue.receive(limit=100)} == set(sent[70:])


def test_durability_aof_is_refused_by_a_server_without_the_file() -> None:
    with RedisServer("--save", "", "--appendonly", "no") as server:
        with penstock.connect(server.url) as store:
            store.migrate()
        with (
            penstock.connect(f"{server.url}?durability=aof") as store,
            pytest.raises(penstock.StoreUnavailable, match="appendonly yes"),
        ):
            store.queue("orders").send(1)


def test_a_call_says_how_many_replicas_have_it() -> None:
    with RedisServer("--save", "") as server:
        with penstock.connect(server.url) as store:
            store.migrate()
        with (
            penstock.connect(f"{server.url}?durability=replicas=1&confirm_seconds=0.05") as store,
            pytest.raises(penstock.StoreUnavailable, match="0 of 1 replicas"),
        ):
            store.queue("orders").send(1)
