"""Marks that were kept outside the store, after a standby was promoted or the data directory was copied: a log that
lost the row before a mark refuses it, however long it is, and one that lost nothing goes on."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest

import penstock
from penstock import LogDiverged, Queue, RangeTrimmed, Store
from penstock.engines.contract import Mark, Table
from tests.engines.postgres.server import Server

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")

TABLES: list[Table] = ["messages", "archive"]
PATIENCE_SECONDS = 60.0


class Pair:
    """A primary server and its standby, which can be cut off, and take over."""

    def __init__(self, folder: Path) -> None:
        self.primary = Server(folder / "primary", durable=True, settings={"wal_level": "replica"})
        with penstock.connect(self.primary.url()) as store:
            store.migrate()
        self.standby = self.primary.standby(folder / "standby")
        self.store = penstock.connect(self.primary.url())

    def cut_off(self) -> None:
        """The standby has everything up to now, and gets nothing more."""
        with psycopg.connect(self.primary.url(), autocommit=True) as primary:
            row = primary.execute("select pg_current_wal_flush_lsn()").fetchone()
        assert row is not None
        with psycopg.connect(self.standby.url(), autocommit=True) as standby:
            wait_for(standby, f"select pg_last_wal_replay_lsn() >= '{row[0]}'")
            standby.execute("alter system set primary_conninfo = ''")
            standby.execute("select pg_reload_conf()")
            wait_for(standby, "select not exists (select 1 from pg_stat_wal_receiver)")

    def fail_over(self) -> None:
        self.store.close()
        self.primary.stop("immediate")
        self.standby.promote()
        self.store = penstock.connect(self.standby.url())

    def close(self) -> None:
        self.store.close()
        self.standby.remove()
        self.primary.remove()


def wait_for(connection: psycopg.Connection, question: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (row := connection.execute(question).fetchone()) is None or not row[0]:
        assert time.monotonic() < deadline, question
        time.sleep(0.05)


@pytest.fixture
def pair() -> Iterator[Pair]:
    with tempfile.TemporaryDirectory(prefix="penstock-failover-") as folder:
        Path(folder).chmod(0o755)
        pair = Pair(Path(folder))
        try:
            yield pair
        finally:
            pair.close()


def work(queue: Queue, *payloads: str) -> None:
    """One transaction for each send, receive and ack."""
    for payload in payloads:
        queue.send(payload.encode())
        queue.ack_many(queue.receive())


def rows(store: Store, start: Mark, table: Table) -> list[str]:
    engine = store.engine
    window = engine.window("orders", start, engine.horizon("orders", table), 1, table)
    batches = [batch for part in window for batch in engine.read(part, columns=["payload"])]
    return [bytes(payload).decode() for batch in batches for payload in batch.column("payload").to_pylist()]


def marks_of(store: Store) -> dict[Table, Mark]:
    return {table: store.engine.horizon("orders", table) for table in TABLES}


def test_law_8_marks_of_what_the_new_primary_never_had_are_refused(pair: Pair) -> None:
    queue = pair.store.queue("orders")
    work(queue, "first")
    kept = marks_of(pair.store)
    pair.cut_off()
    work(queue, *(f"lost {number}" for number in range(9)))
    lost = marks_of(pair.store)
    middle = {table: pair.store.engine.cut("orders", kept[table], lost[table], 3, table=table) for table in TABLES}
    pair.fail_over()
    new = [f"new {number}" for number in range(30)]
    work(pair.store.queue("orders"), *new)
    for table in TABLES:
        for mark in (lost[table], middle[table]):
            with pytest.raises(LogDiverged):
                rows(pair.store, mark, table)
            with pytest.raises(LogDiverged):
                pair.store.engine.window("orders", kept[table], mark, 1, table)
            with pytest.raises(LogDiverged):
                pair.store.engine.advance("orders", f"stream of {table}", mark, table)
        assert rows(pair.store, kept[table], table) == new


def test_a_promotion_that_lost_nothing_goes_on(pair: Pair) -> None:
    queue = pair.store.queue("orders")
    work(queue, "first", "second")
    marks = marks_of(pair.store)
    pair.cut_off()
    pair.fail_over()
    work(pair.store.queue("orders"), "new")
    for table in TABLES:
        assert rows(pair.store, marks[table], table) == ["new"]


def test_what_other_queues_lost_does_no_harm(pair: Pair) -> None:
    """Transactions and positions that they had are given to this queue now."""
    work(pair.store.queue("orders"), "first")
    pair.cut_off()
    work(pair.store.queue("others"), *(f"lost {number}" for number in range(50)))
    marks = marks_of(pair.store)
    now = pair.store.engine.mark_at("orders", pair.store.engine.now())
    pair.fail_over()
    new = [f"new {number}" for number in range(9)]
    work(pair.store.queue("orders"), *new)
    for table in TABLES:
        assert rows(pair.store, marks[table], table) == new
    assert rows(pair.store, now, "messages") == new


GONE: dict[str, Callable[[Queue], object]] = {
    "trimmed": lambda queue: queue.trim(keep=0),
    "flushed": lambda queue: queue.flush(),
    "past retention": lambda queue: _pass_retention(queue),
}


def _pass_retention(queue: Queue) -> None:
    queue.store.queue("orders", history_seconds=0)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while queue.archive():
        assert time.monotonic() < deadline
        queue.store.sweep()


@pytest.mark.parametrize("how", GONE)
def test_a_mark_whose_row_is_gone_is_good_until_the_log_is_another(pair: Pair, how: str) -> None:
    queue = pair.store.queue("orders")
    work(queue, "first")
    pair.cut_off()
    work(queue, "lost 1", "lost 2")
    marks = marks_of(pair.store)
    GONE[how](queue)
    beginning = pair.store.engine.earliest("orders")
    work(queue, "lost 3")
    for table in TABLES:
        assert rows(pair.store, marks[table], table) == ["lost 3"]
    assert rows(pair.store, beginning, "messages") == ["lost 3"]
    pair.fail_over()
    queue = pair.store.queue("orders")
    work(queue, "new 1", "new 2")
    GONE[how](queue)
    work(queue, *(f"new {number}" for number in range(9)))
    for table in TABLES:
        with pytest.raises(LogDiverged):
            rows(pair.store, marks[table], table)
    with pytest.raises(RangeTrimmed):  # where the new log begins later than the lost one did, it is just that
        rows(pair.store, beginning, "messages")


def test_law_8_a_copy_of_the_files_refuses_marks_of_what_came_later(tmp_path: Path) -> None:
    """Nothing tells such a copy from its original: neither the system identifier nor the timeline."""
    with tempfile.TemporaryDirectory(prefix="penstock-copied-") as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "cluster", durable=True)
        try:
            with penstock.connect(server.url()) as store:
                store.migrate()
                work(store.queue("orders"), "first")
            server.stop()
            shutil.copytree(server.data, tmp_path / "copy", symlinks=True)
            server.start()
            with penstock.connect(server.url()) as store:
                work(store.queue("orders"), "lost 1", "lost 2")
                marks = marks_of(store)
            server.stop()
            for old in server.data.iterdir():
                shutil.rmtree(old) if old.is_dir() else old.unlink()
            shutil.copytree(tmp_path / "copy", server.data, symlinks=True, dirs_exist_ok=True)
            owner = server.data.stat()
            for path in server.data.rglob("*"):
                shutil.chown(path, owner.st_uid, owner.st_gid)
            server.start()
            with penstock.connect(server.url()) as store:
                work(store.queue("orders"), *(f"new {number}" for number in range(9)))
                for table in TABLES:
                    with pytest.raises(LogDiverged):
                        rows(store, marks[table], table)
        finally:
            server.remove()
