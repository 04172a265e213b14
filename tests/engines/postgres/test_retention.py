"""Retention under rollbacks, timeouts and crashes: an undone sweep has no effect, and no call waits for one."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import Queue, Store
from tests.engines.postgres.fixtures import Begin
from tests.engines.postgres.server import Server

HISTORY = 0.2
SWEEPS = (
    "select penstock.sweep()",
    "select penstock.sweep_queue('orders')",
    "select penstock.delete_trimmed('orders')",
)


@pytest.fixture
def short(store: Store) -> Queue:
    return store.queue("orders", history_seconds=HISTORY, lease_seconds=600)


def payloads(queue: Queue) -> list[str]:
    return [delivery.payload.decode() for delivery in queue.receive(limit=10_000)]


def rows(connection: psycopg.Connection, table: str) -> int:
    row = connection.execute(f"select count(*) from penstock.{table}".encode()).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize("sweep", SWEEPS)
def test_what_is_sent_between_sweeps_that_are_undone_is_delivered(
    short: Queue, other: psycopg.Connection, sweep: str
) -> None:
    sent, received = [], []
    for number in range(5):
        sent.append(str(number))
        short.send(str(number).encode())
        if number % 2:
            short.ack_many(deliveries := short.receive(limit=10))
            received += [delivery.payload.decode() for delivery in deliveries]
        time.sleep(HISTORY)
        other.execute(sweep.encode())
        other.rollback()
    assert received + payloads(short) == sent


@pytest.mark.parametrize("sweep", SWEEPS[:2])
def test_retention_does_not_pass_the_newest_transaction_of_all_while_it_is_open(
    short: Queue, other: psycopg.Connection, watcher: psycopg.Connection, sweep: str
) -> None:
    """No snapshot names it: no later one has ended."""
    short.send(b"before")
    short.ack_many(short.receive())
    short.send(b"late", transaction=other)
    for _ in range(3):
        watcher.execute(sweep.encode())
        time.sleep(HISTORY * 1.1)
    other.commit()
    for _ in range(2):
        watcher.execute(sweep.encode())
    assert payloads(short) == ["late"]


def test_sweeps_go_on_after_one_that_was_undone(
    store: Store, short: Queue, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    for _ in range(3):
        short.send_many([b"x"] * 100)
        short.ack_many(short.receive(limit=100))
        other.execute("select penstock.sweep()")
        other.rollback()
    until_empty(store, watcher)
    assert short.stats("default").done == 300
    assert all(check.level != "error" for check in store.doctor())


def test_a_sweep_that_times_out_loses_nothing_and_gets_on(
    store: Store, short: Queue, watcher: psycopg.Connection, postgres_url: str
) -> None:
    for _ in range(5):
        short.send_many([b"x" * 300] * 10_000)
        short.ack_many(short.receive(limit=10_000))
    store.sweep()
    time.sleep(HISTORY)
    cancelled = 0
    with psycopg.connect(postgres_url, autocommit=True) as sweeping:
        for milliseconds in (1, 2, 5, 10, 20, 50, 100, 200, 400, 800):
            sweeping.execute(f"set statement_timeout = {milliseconds}".encode())
            short.send(str(milliseconds).encode())
            try:
                sweeping.execute("select penstock.sweep()")
            except psycopg.errors.QueryCanceled:
                cancelled += 1
    assert cancelled
    assert payloads(short) == ["1", "2", "5", "10", "20", "50", "100", "200", "400", "800"]
    store.sweep()
    assert rows(watcher, "log") == 10
    assert short.stats("default").done == 50_000


def until_empty(store: Store, watcher: psycopg.Connection) -> None:
    ends = time.monotonic() + 60
    while rows(watcher, "log") or rows(watcher, "audit"):
        store.sweep()
        assert time.monotonic() < ends, "rows that are past retention are still there"
        time.sleep(HISTORY / 4)


def test_a_receive_does_not_wait_for_a_sweep_that_is_at_another_queue(
    store: Store, watcher: psycopg.Connection, begin: Begin, other: psycopg.Connection
) -> None:
    """Though it has something to do in this one for which receives must wait."""
    store.queue("aaa").send(b"over", ttl_seconds=0.01)
    store.queue("aaa").send(b"next")
    last = store.queue("zzz", dead_letter_seconds=0.01)
    last.send(b"bad")
    last.receive()[0].reject("no")
    time.sleep(0.05)
    stop_purging(watcher)
    other.execute("select pg_advisory_xact_lock(99)")
    swept = begin(lambda: watch_sweep(store))
    watcher.execute("set lock_timeout = '5s'")
    assert [row[0] for row in watcher.execute("select payload from penstock.receive('aaa')").fetchall()] == [b"next"]
    other.rollback()
    swept.result(60)
    assert store.queue("aaa").dead_letters()[0].outcome == "expired"


def stop_purging(watcher: psycopg.Connection) -> None:
    """A purge of a dead letter waits for the holder of lock 99."""
    watcher.execute(
        "create function public.wait() returns trigger language plpgsql as "
        "$$ begin perform pg_advisory_xact_lock(99); return old; end $$"
    )
    watcher.execute(
        "create trigger wait before delete on penstock.dead_letter for each row execute function public.wait()"
    )


def watch_sweep(store: Store) -> None:
    with psycopg.connect(store.engine.database.url) as connection:  # type: ignore[attr-defined]
        connection.execute("select penstock.sweep()")


def test_a_sweep_waits_once_for_what_is_not_decided(store: Store, other: psycopg.Connection, postgres_url: str) -> None:
    for number in range(5):
        store.queue(f"queue {number}").send(b"x")
    other.execute("select pg_current_xact_id()")
    with psycopg.connect(postgres_url) as sweeping:
        sweeping.execute("set track_functions = 'pl'")
        sweeping.execute("select penstock.sweep()")
        calls = sweeping.execute(
            "select funcname, calls from pg_stat_xact_user_functions where funcname in ('decide', '_trim_queue')"
        ).fetchall()
    assert dict(calls) == {"decide": 1, "_trim_queue": 5}


def test_a_sweep_does_not_wait_for_a_transaction_that_uses_an_old_address_or_letter(
    store: Store, other: psycopg.Connection, watcher: psycopg.Connection
) -> None:
    queue = store.queue("orders", history_seconds=0.01, dead_letter_seconds=0.01)
    queue.send(b"done", address="a")
    queue.ack_many(queue.receive())
    queue.send(b"bad")
    queue.receive()[0].reject("no")
    store.sweep()
    time.sleep(0.05)
    queue.send(b"again", address="a", transaction=other)
    other.execute("select 1 from penstock.dead_letter for update")
    watcher.execute("set lock_timeout = '2s'")
    watcher.execute("select penstock.sweep()")
    watcher.execute("call penstock.sweep_queues()")
    other.commit()
    assert payloads(queue) == ["again"]


@pytest.fixture
def own_server() -> Iterator[Server]:
    with tempfile.TemporaryDirectory(prefix="penstock-retention-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "cluster", durable=True)
        yield server
        server.stop("immediate")


def test_a_crash_while_rows_are_deleted_neither_loses_nor_repeats(own_server: Server) -> None:
    """Beside a queue of which rows go all the time: what was acked stays acked, at most once is at most once, what was
    sent is there, and rows go on being deleted."""
    url = own_server.url()
    with penstock.connect(url) as store:
        store.migrate()
        store.queue("short", history_seconds=0.05)
        store.queue("orders")
        store.queue("once", delivery="at_most_once")
    acked: dict[str, set[bytes]] = {"orders": set(), "once": set()}
    waiting: dict[str, set[bytes]] = {"orders": set(), "once": set()}
    for turn in range(3):
        with penstock.connect(url) as store:
            over = threading.Event()
            sweeper = threading.Thread(target=_sweep, args=(url, over))
            sweeper.start()
            for number in range(40):
                store.queue("short").send_many([b"x"] * 20)
                store.queue("short").ack_many(store.queue("short").receive(limit=50))
                for name in acked:
                    queue = store.queue(name)
                    payload = b"%d.%d" % (turn, number)
                    queue.send(payload)
                    (delivery,) = queue.receive()
                    delivery.ack()
                    acked[name].add(delivery.payload)
            over.set()
            sweeper.join()
            for name, left in waiting.items():
                store.queue(name).send(b"left %d" % turn)
                left.add(b"left %d" % turn)
            own_server.stop("immediate")
        own_server.start()
        with penstock.connect(url) as store:
            for name in acked:
                again = store.queue(name).receive(limit=1000)
                assert {delivery.payload for delivery in again} == waiting[name]
                store.queue(name).ack_many(again)
                acked[name] |= waiting[name]
                waiting[name] = set()
                assert store.queue(name).stats("default").done == len(acked[name])
    with penstock.connect(url) as store, psycopg.connect(url, autocommit=True) as connection:
        store.queue("short").ack_many(store.queue("short").receive(limit=10_000))
        ends = time.monotonic() + 60
        while rows(connection, "log") > sum(map(len, acked.values())):
            store.sweep()
            assert time.monotonic() < ends
            time.sleep(0.05)
        assert all(check.level != "error" for check in store.doctor())


def _sweep(url: str, over: threading.Event) -> None:
    with penstock.connect(url) as store:
        while not over.wait(0.01):
            store.sweep()
