"""A dump restored into another cluster: `migrate` rebases its transaction numbers."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import penstock
from penstock import Queue
from penstock.engines.contract import Mark, Table
from tests.engines.postgres.server import Server, binaries

HISTORY = 0.05


@pytest.fixture
def other_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="penstock-restore-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "cluster")
        yield server
        server.stop("immediate")


def restored(url: str, server: Server) -> str:
    """The same content in a fresh cluster, whose transaction numbers begin anew."""
    dump = subprocess.run([binaries() / "pg_dump", "-Fc", url], check=True, capture_output=True)
    target = server.url("restored")
    with psycopg.connect(server.url(), autocommit=True) as admin:
        admin.execute("create database restored")
    # Roles belong to the cluster, not to the database: rights are given anew by the migration.
    restore = [str(binaries() / "pg_restore"), "--no-privileges", "-d", target]
    subprocess.run(restore, input=dump.stdout, check=True, capture_output=True)
    return target


def finish(queue: Queue, limit: int = 1000) -> list[bytes]:
    deliveries = queue.receive(limit=limit)
    queue.ack_many(deliveries)
    return [delivery.payload for delivery in deliveries]


def test_law_8_after_dump_and_restore_nothing_is_lost_and_nothing_comes_twice(
    postgres_url: str, other_server: Server
) -> None:
    with penstock.connect(postgres_url) as store:
        queue = store.queue("orders")
        # Transaction numbers of this cluster run ahead of those of the new one.
        for number in range(200):
            queue.send(f"{number}".encode())
        assert finish(queue, 50) == [f"{number}".encode() for number in range(50)]
        [retried] = queue.receive(limit=1)
        retried.nak("again", delay_seconds=0)
        again, dead = queue.receive(limit=2)
        assert (again.payload, dead.payload) == (b"50", b"51")
        again.nak("and again", delay_seconds=0)
        dead.reject("never")
        queue.receive(limit=3, lease_seconds=1e-3)
        before = queue.stats("default")
    url = restored(postgres_url, other_server)
    with penstock.connect(url) as store:
        store.migrate()
        queue = store.queue("orders")
        after = queue.stats("default")
        assert (after.total, after.done, after.dead) == (before.total, before.done, before.dead)
        queue.send(b"new")
        got: list[bytes] = []
        while payloads := finish(queue, 40):
            got += payloads
        expected = [f"{number}".encode() for number in range(50, 200)] + [b"new"]
        assert sorted([*got, dead.payload]) == sorted(expected)
        assert [letter.id for letter in queue.dead_letters()] == [dead.id]
        stats = queue.stats("default")
        assert stats.total == stats.done + stats.dead == 201


class MovedServer:
    """A pool of connections to one server, and after a number of calls to the one that has taken its place."""

    def __init__(self, before: ConnectionPool[Any], after: ConnectionPool[Any], calls: int) -> None:
        self._before = before
        self._after = after
        self.calls_left = calls

    def getconn(self) -> psycopg.Connection:
        self.calls_left -= 1
        connection: psycopg.Connection = self._pool.getconn()
        return connection

    def putconn(self, connection: psycopg.Connection) -> None:
        self._pool.putconn(connection)

    @property
    def _pool(self) -> ConnectionPool[Any]:
        return self._before if self.calls_left >= 0 else self._after


def test_a_restore_in_the_middle_of_a_sweep_loses_nothing(postgres_url: str, other_server: Server) -> None:
    """The sweep has seen positions that the restore undid, and that are assigned again. Each of its calls is once the
    first in the new server."""
    with penstock.connect(postgres_url) as store:
        queue = store.queue("orders", history_seconds=HISTORY)
        queue.send(b"old")
        assert finish(queue) == [b"old"]
        url = restored(postgres_url, other_server)
        queue.send_many([b"undone"] * 1000)
    with penstock.connect(url) as store:
        store.migrate()
        queue = store.queue("orders")
        calls, left = 0, -1
        while left < 0:
            left = sweep_over(postgres_url, url, calls)
            time.sleep(HISTORY)
            store.sweep()
            queue.send(f"{calls}".encode())
            assert finish(queue) == [f"{calls}".encode()], f"a server that was replaced after {calls} calls"
            calls += 1
    assert calls > 3


def sweep_over(before: str, after: str, calls: int) -> int:
    """Sweep a store whose server is replaced after so many calls. Returns how many of them it did not make."""
    with ConnectionPool(before) as old, ConnectionPool(after) as new:
        moved = MovedServer(old, new, 1_000_000)
        with penstock.connect(before, pool=moved, listen=False) as store:  # type: ignore[arg-type]
            moved.calls_left = calls
            store.sweep()
        return moved.calls_left


def test_a_restored_store_that_was_not_migrated_says_so(postgres_url: str, other_server: Server) -> None:
    with penstock.connect(postgres_url) as store:
        store.queue("orders").send(b"one")
    url = restored(postgres_url, other_server)
    with pytest.raises(penstock.PenstockError, match="migrate"), penstock.connect(url) as store:
        store.queue("orders").receive()


SENDS = {
    "send": "select penstock.send('orders', '\"new\"')",
    "send with options": "select penstock.send('orders', '\"new\"', priority => 3)",
    "send to a new queue": "select penstock.send('never used', '\"new\"')",
    "send_many": "select * from penstock.send_many('orders', array['\"new\"', '\"newer\"']::jsonb[])",
    "enqueue": "call test01.enqueue('{}'::json)",
    "insert": "insert into messages.message (message) values ('{}')",
    "receive": "select * from penstock.receive('orders')",
    "dequeue": "select * from test01.dequeue('client', 30)",
    "sweep": "select * from penstock.sweep()",
}


@pytest.mark.parametrize("ahead", [True, False], ids=["later numbers", "earlier numbers"])
def test_a_sql_client_is_refused_in_a_restored_store_until_it_is_migrated(
    postgres_url: str, other_server: Server, ahead: bool
) -> None:
    """Whether the numbers of the dump are later or earlier than those of the new cluster."""
    with penstock.connect(postgres_url) as store:
        store.queue("orders").send(b"old")
        store.queue("orders").receive(limit=1)[0].ack()
    with psycopg.connect(postgres_url, autocommit=True) as client:
        client.execute("select penstock.create_queue_schema('test01'), penstock.create_message_schema('messages')")
        client.execute("select penstock.send('orders', '\"kept\"')")
    url = restored(postgres_url, other_server)
    with psycopg.connect(url, autocommit=True) as client:
        if not ahead:
            for _ in range(20_000):
                client.execute("select pg_current_xact_id()")
        for _ in range(2):
            for statement in SENDS.values():
                with pytest.raises(psycopg.Error, match="run `penstock migrate`"):
                    client.execute(statement)
        with penstock.connect(url) as store:
            store.migrate()
            client.execute(SENDS["send"])
            client.execute(SENDS["enqueue"])
            assert finish(store.queue("orders")) == [b'"kept"', b'"new"']
        assert client.execute(SENDS["dequeue"]).fetchall()


def test_the_trail_goes_on_after_dump_and_restore(postgres_url: str, other_server: Server) -> None:
    """A stream group reads its unread messages, and trimmed ones do not make the rest unreadable."""
    with penstock.connect(postgres_url) as store:
        queue = store.queue("orders")
        queue.send_many([b"trimmed", b"followed", b"open"])
        queue.ack_many(queue.receive(limit=1))
        queue.trim(upto=queue.engine.last_position("orders") - 2)
        queue.ack_many(queue.receive(limit=1))
        queue.engine.advance("orders", "lake", queue.engine.horizon("orders", "audit"), "audit")
    url = restored(postgres_url, other_server)
    with penstock.connect(url) as store:
        store.migrate()
        queue, engine = store.queue("orders"), store.engine
        finish(queue)
        start = engine.stream_position("orders", "lake")
        assert start is not None

        def read(start: Mark, table: Table) -> list[bytes]:
            window = engine.window("orders", start, engine.horizon("orders", table), 1, table)
            return [row for part in window for one in engine.read(part) for row in one.column("payload").to_pylist()]

        assert read(start, "archive") == [b"open"]
        assert read(engine.earliest("orders"), "messages") == [b"followed", b"open"]
        engine.advance("orders", "lake", engine.horizon("orders", "audit"), "audit")
        assert queue.stats("lake").lag == 0
