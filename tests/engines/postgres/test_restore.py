"""A dump restored into another cluster: `migrate` rebases its transaction numbers."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import Queue
from penstock.engines.contract import Mark, Table
from tests.engines.postgres.server import Server, binaries


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
