"""Large parts of a sink are prepared transactions: sent once, whichever process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pyarrow
import pytest

import penstock
from penstock import PenstockError, Queue, Refused, Store
from penstock.engines.postgres.sink import LARGE_ROWS
from tests.conformance.clock import Clock
from tests.engines.postgres.server import Server, fresh_database

PLACES = "select place from generate_series(1, current_setting('max_prepared_transactions')::integer) as place"
# The steps of a process before it dies, one more each time. All of them write the same messages.
WRITE = f"""
import os, signal, pyarrow, penstock
from penstock.engines.postgres import prepared_write
def die(*_): os.kill(os.getpid(), signal.SIGKILL)
engine = penstock.connect(URL).engine
def batches():
    for first in range(0, {LARGE_ROWS}, {LARGE_ROWS} // 4):
        yield pyarrow.record_batch({{"payload": [b"%d" % (first + n) for n in range({LARGE_ROWS} // 4)]}})
"""
STAGE = 'engine.stage("orders", "job/1", "doomed", batches())\n'
RELEASE = STAGE + 'engine.release("orders", "job/1", ["doomed"])\n'
PREPARE = """
def prepare(self): self._run(prepared_write.SQL.prepare_transaction.replace("{name}", self._name)), die()
prepared_write.PreparedWrite.end = prepare
"""
GIVEN_UP = """
def given_up():
    yield from batches()
    engine.discard("orders", "job/1")
engine.stage("orders", "job/1", "doomed", given_up())
"""
STEPS = {
    "while it writes": "prepared_write.PreparedWrite.end = die\n" + STAGE,
    "when it has prepared": PREPARE + STAGE,
    "when it has prepared what was given up": PREPARE + GIVEN_UP,
    "when it was decided": "prepared_write.finish = die\n" + RELEASE,
    "when it was kept": "prepared_write._end = lambda *given, end=prepared_write._end: (end(*given), die())\n"
    + RELEASE,
}


@pytest.fixture
def url(tmp_path: Path) -> str:
    return fresh_database(folder=tmp_path)


@pytest.fixture
def store(url: str, clock: Clock) -> Iterator[Store]:
    with penstock.connect(url, clock=clock) as store:
        yield store


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue("orders")


@pytest.fixture
def watcher(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url, autocommit=True) as connection:
        yield connection


def large(first: int = 0, rows: int = LARGE_ROWS, **columns: Any) -> list[pyarrow.RecordBatch]:
    payloads = [b"%d" % number for number in range(first, first + rows)]
    whole = pyarrow.table({"payload": payloads, **columns})
    return list(whole.to_batches(max_chunksize=7_001))


def kept(watcher: psycopg.Connection) -> int:
    """Transactions of this database that the server keeps."""
    row = watcher.execute("select count(*) from pg_prepared_xacts where database = current_database()").fetchone()
    assert row is not None
    return int(row[0])


def taken(queue: Queue) -> list[int]:
    found: list[int] = []
    while deliveries := queue.receive(limit=10_000):
        found += [int(delivery.payload) for delivery in deliveries]
        queue.ack_many(deliveries)
    return found


def test_nobody_sees_a_prepared_write_until_it_is_released(queue: Queue, watcher: psycopg.Connection) -> None:
    engine = queue.engine
    queue.send(-1)
    assert engine.stage("orders", "job/1", "a", large()) == LARGE_ROWS
    queue.send(-2)
    assert kept(watcher) == 1
    assert taken(queue) == [-1, -2]
    queue.send(-3)
    assert engine.release("orders", "job/1", ["a"]) == LARGE_ROWS
    # After messages that were read, before messages sent later: neither is missed.
    assert sorted(taken(queue)) == [-3, *range(LARGE_ROWS)]
    assert kept(watcher) == 0
    assert queue.stats("default").total == queue.stats("default").done == LARGE_ROWS + 3


def test_a_part_is_in_order_and_every_column_arrives(queue: Queue) -> None:
    kinds = [f"text/{number % 3}" for number in range(LARGE_ROWS)]
    priorities = pyarrow.array([number % 2 * 5 for number in range(LARGE_ROWS)], pyarrow.int32())
    queue.engine.stage("orders", "job/1", "a", large(content_type=kinds, priority=priorities))
    queue.engine.release("orders", "job/1", ["a"])
    first, *_ = queue.receive(limit=2)[1:]
    message = queue.find(first.id)
    assert (message.payload, message.content_type, message.priority) == (b"2", "text/2", 0)
    expected = [*range(4, LARGE_ROWS, 2), *range(1, LARGE_ROWS, 2)]
    assert taken(queue) == expected


def test_messages_with_options_are_staged_beside_a_prepared_write(queue: Queue, watcher: psycopg.Connection) -> None:
    address = pyarrow.record_batch({"payload": [b"77777"], "address": ["here"]})
    assert queue.engine.stage("orders", "job/1", "a", [*large(), address]) == LARGE_ROWS + 1
    assert kept(watcher) == 1
    assert queue.engine.release("orders", "job/1", ["a"]) == LARGE_ROWS + 1
    assert sorted(taken(queue)) == [*range(LARGE_ROWS), 77777]


def test_rows_that_the_server_refuses_fail_the_part(queue: Queue, watcher: psycopg.Connection) -> None:
    kinds = ["text/plain"] * LARGE_ROWS
    kinds[LARGE_ROWS // 2] = "text\0plain"
    with pytest.raises(PenstockError, match="0x00"):
        queue.engine.stage("orders", "job/1", "refused", large(content_type=kinds))
    assert kept(watcher) == 0
    assert queue.engine.stage("orders", "job/1", "right", large()) == LARGE_ROWS
    assert queue.engine.release("orders", "job/1", ["right"]) == LARGE_ROWS
    assert taken(queue) == [*range(LARGE_ROWS)]


def test_parts_take_their_positions_one_after_the_other(queue: Queue, url: str, watcher: psycopg.Connection) -> None:
    """Each then has pages of its own in the indexes, instead of waiting for the other's."""
    take = "select first, positions from penstock.reserve_positions('orders', 0, 3, 9)"
    queue.send(1)
    with psycopg.connect(url) as other:
        first = other.execute(take).fetchone()
        watcher.execute("set lock_timeout = '50ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            watcher.execute(take)
    assert first is not None
    assert watcher.execute(take).fetchone() == (first[0] + 3, None)


def test_a_release_happens_once_and_attempts_that_lost_are_dropped(queue: Queue, watcher: psycopg.Connection) -> None:
    engine = queue.engine
    for part in ("lost", "won"):
        engine.stage("orders", "job/1", part, large())
    assert engine.release("orders", "job/1", ["won"]) == LARGE_ROWS
    engine.stage("orders", "job/1", "again", large())
    assert engine.release("orders", "job/1", ["again"]) is None
    assert kept(watcher) == 0
    assert taken(queue) == list(range(LARGE_ROWS))


def test_what_is_discarded_while_it_is_written_is_refused(queue: Queue, watcher: psycopg.Connection) -> None:
    def batches() -> Iterator[pyarrow.RecordBatch]:
        yield from large()
        queue.engine.discard("orders", "job/1")

    with pytest.raises(Refused, match="write it again"):
        queue.engine.stage("orders", "job/1", "a", batches())
    assert kept(watcher) == 0
    assert taken(queue) == []


def test_without_a_free_place_a_part_is_put_aside(queue: Queue, watcher: psycopg.Connection) -> None:
    watcher.execute(f"select pg_advisory_lock(1347310676, place) from ({PLACES}) as every")
    queue.engine.stage("orders", "job/1", "a", large())
    assert kept(watcher) == 0
    assert queue.engine.release("orders", "job/1", ["a"]) == LARGE_ROWS
    assert taken(queue) == list(range(LARGE_ROWS))


def test_a_sweep_drops_what_nobody_released_in_a_day(
    store: Store, queue: Queue, clock: Clock, watcher: psycopg.Connection
) -> None:
    queue.engine.stage("orders", "job/1", "a", large())
    store.sweep()
    assert kept(watcher) == 1
    clock.advance(seconds=86_401)
    store.sweep()
    assert kept(watcher) == 0


def test_nothing_is_sent_when_a_prepared_write_is_gone(queue: Queue, watcher: psycopg.Connection) -> None:
    for part in ("a", "b"):
        queue.engine.stage("orders", "job/1", part, large())
    row = watcher.execute("select gid from pg_prepared_xacts where database = current_database()").fetchone()
    assert row is not None
    watcher.execute(f"rollback prepared '{row[0]}'")
    with pytest.raises(Refused, match="write it again"):
        queue.engine.release("orders", "job/1", ["a", "b"])
    queue.engine.discard("orders", "job/1")
    assert (kept(watcher), taken(queue), queue.engine.ledger("sink")) == (0, [], {})


@pytest.mark.parametrize("step", STEPS)
def test_whoever_dies_the_next_try_sends_everything_once(
    step: str, url: str, queue: Queue, watcher: psycopg.Connection
) -> None:
    queue.send(-1)
    _die_at(step, url)
    engine = queue.engine
    engine.stage("orders", "job/1", "again", large())
    engine.release("orders", "job/1", ["again"])
    assert kept(watcher) == 0
    assert taken(queue) == [-1, *range(LARGE_ROWS)]
    assert watcher.execute("select count(*) from penstock.prepared_write").fetchone() == (0,)


def test_what_was_decided_is_finished_by_a_sweep(
    url: str, store: Store, queue: Queue, watcher: psycopg.Connection
) -> None:
    _die_at("when it was decided", url)
    assert (kept(watcher), taken(queue)) == (1, [])
    store.sweep()
    assert (kept(watcher), taken(queue)) == (0, list(range(LARGE_ROWS)))


def test_a_sweep_rolls_back_a_write_that_was_prepared_after_it_was_given_up(
    url: str, store: Store, queue: Queue, watcher: psycopg.Connection
) -> None:
    _die_at("when it has prepared what was given up", url)
    assert kept(watcher) == 1
    store.sweep()
    assert (kept(watcher), taken(queue)) == (0, [])


def test_a_sweep_leaves_alone_what_it_may_not_end(
    url: str, store: Store, queue: Queue, watcher: psycopg.Connection
) -> None:
    _die_at("when it was decided", url)
    sweeper = f"penstock_sweeper_{os.getpid()}"
    watcher.execute(f"create role {sweeper} login")
    try:
        watcher.execute(f"grant penstock_admin to {sweeper}")
        with penstock.connect(url.replace("postgres@", f"{sweeper}@", 1)) as other:
            other.sweep()
        assert kept(watcher) == 1
        store.sweep()
        assert taken(queue) == list(range(LARGE_ROWS))
    finally:
        watcher.execute(f"drop role {sweeper}")


def _die_at(step: str, url: str) -> None:
    script = WRITE.replace("URL", repr(url)) + STEPS[step]
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL


def test_a_server_that_crashes_keeps_prepared_writes() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-prepared-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "cluster", durable=True)
        try:
            with penstock.connect(server.url()) as store:
                store.migrate()
                queue = store.queue("orders")
                queue.engine.stage("orders", "job/0", "a", large(LARGE_ROWS))
                _crash(server)
                assert queue.engine.release("orders", "job/0", ["a"]) == LARGE_ROWS
                _die_at("when it was decided", server.url())
                _crash(server)
                store.sweep()
                assert sorted(taken(queue)) == list(range(2 * LARGE_ROWS))
                server.settings["max_prepared_transactions"] = "0"
                _crash(server)
                assert queue.engine.stage("orders", "job/2", "a", large()) == LARGE_ROWS
                assert queue.engine.release("orders", "job/2", ["a"]) == LARGE_ROWS
                assert taken(queue) == list(range(LARGE_ROWS))
        finally:
            server.remove()


def _crash(server: Server) -> None:
    server.stop("immediate")
    server.start()
