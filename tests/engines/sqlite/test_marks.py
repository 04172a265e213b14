"""Marks that were kept outside the store, after its file was replaced by an older copy: the numbers are given out
again, and a mark of the lost ones is refused, however long the new log is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from penstock import InvalidInput, LogDiverged, Queue, RangeTrimmed, Store
from penstock.engines.contract import Mark, Table
from penstock.engines.positional import marks
from tests.conformance.assertions import take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")


class Restored:
    """A store that was copied, changed, and replaced by the copy."""

    def __init__(self, open_store: Opener, url: str, clock: Clock) -> None:
        self.open_store = open_store
        self.path = Path(url.removeprefix("sqlite:///"))
        self.clock = clock
        self.store = open_store()
        self.orders = self.store.queue("orders", **POLICY)

    def copy(self) -> None:
        target = apsw.Connection(str(self.path.with_suffix(".copy")))
        source = apsw.Connection(str(self.path))
        with target.backup("main", source, "main") as backup:
            backup.step()
        source.close()
        target.close()

    def restore(self) -> None:
        self.store.close()
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)
        shutil.move(self.path.with_suffix(".copy"), self.path)
        self.clock.advance(seconds=5)
        self.store = self.open_store()
        self.orders = self.store.queue("orders")

    def read(self, start: Mark, table: Table = "messages") -> list[bytes]:
        engine = self.store.engine
        window = engine.window("orders", start, engine.horizon("orders", table), 1, table)
        return [
            bytes(payload)
            for part in window
            for batch in engine.read(part)
            for payload in batch.column("payload").to_pylist()
        ]


@pytest.fixture
def restored(open_store: Opener, url: str, clock: Clock) -> Restored:
    return Restored(open_store, url, clock)


def done(queue: Queue, count: int) -> None:
    queue.send_many(list(range(count)))
    queue.ack_many(take_all(queue))


def test_a_mark_of_lost_messages_is_refused_when_the_log_is_longer_than_before(restored: Restored) -> None:
    restored.orders.send_many([1, 2])
    before = restored.store.engine.horizon("orders")
    restored.copy()
    restored.orders.send_many([3, 4, 5])
    middle = restored.store.engine.cut("orders", before, restored.store.engine.horizon("orders"), 2)
    after = restored.store.engine.horizon("orders")
    restored.restore()
    restored.orders.send_many([6])
    for mark in (middle, after):
        with pytest.raises(LogDiverged):
            restored.read(mark)
    restored.orders.send_many([7, 8, 9])
    for mark in (middle, after):
        with pytest.raises(LogDiverged, match="restored"):
            restored.read(mark)
        with pytest.raises(LogDiverged):
            restored.store.engine.window("orders", before, mark, 1)
        with pytest.raises(LogDiverged):
            restored.store.engine.advance("orders", "lake", mark)
    assert restored.read(before) == [b"6", b"7", b"8", b"9"]


def test_positions_that_others_had_are_read_when_this_queue_gets_them(restored: Restored) -> None:
    """The mark names the last message of its own queue, so that what others lost behind it does no harm."""
    restored.orders.send_many([1, 2])
    restored.copy()
    restored.store.queue("others").send_many(list(range(9)))
    mark = restored.store.engine.horizon("orders")
    restored.restore()
    restored.orders.send_many([3, 4])
    assert restored.read(mark) == [b"3", b"4"]


@pytest.mark.parametrize("table", ["archive", "audit"])
def test_a_mark_of_a_lost_trail_is_refused(restored: Restored, table: Table) -> None:
    restored.orders.send_many([1, 2, 3])
    restored.copy()
    for _ in range(3):
        restored.orders.ack_many(restored.orders.receive())
    mark = restored.store.engine.horizon("orders", table)
    restored.restore()
    done(restored.orders, 9)
    with pytest.raises(LogDiverged):
        restored.store.engine.window("orders", mark, restored.store.engine.horizon("orders", table), 1, table)


TRIMS: dict[str, Callable[[Restored], object]] = {
    "retention": lambda restored: _pass_retention(restored.store, restored.clock),
    "trim": lambda restored: restored.orders.trim(keep=0),
    "flush": lambda restored: restored.orders.flush(),
}


def _pass_retention(store: Store, clock: Clock) -> None:
    store.sweep()
    clock.advance(seconds=7_003)
    assert store.sweep().trimmed > 0


@pytest.mark.parametrize("trim", TRIMS)
@pytest.mark.parametrize("table", ["messages", "archive"])
def test_a_mark_whose_row_is_trimmed_is_good_in_its_own_store_alone(
    restored: Restored, trim: str, table: Table
) -> None:
    done(restored.orders, 2)
    restored.copy()
    done(restored.orders, 5)
    engine = restored.store.engine
    mark = engine.horizon("orders", table)
    TRIMS[trim](restored)
    done(restored.orders, 1)
    assert restored.read(mark, table)[-1:] == [b"0"]
    restored.restore()
    done(restored.orders, 5)
    TRIMS[trim](restored)
    done(restored.orders, 9)
    with pytest.raises(LogDiverged):
        restored.read(mark, table)


def test_a_mark_before_what_was_trimmed_is_past_retention(restored: Restored) -> None:
    done(restored.orders, 2)
    mark = restored.store.engine.horizon("orders")
    done(restored.orders, 2)
    restored.orders.trim(keep=0)
    restored.orders.send("new")
    with pytest.raises(RangeTrimmed, match="past retention"):
        restored.read(mark)


def test_a_mark_of_an_earlier_version_has_no_witness_and_is_taken(restored: Restored) -> None:
    restored.orders.send_many([1, 2, 3])
    assert restored.read(2) == [b"3"]
    with pytest.raises(LogDiverged):
        restored.read(4)


@pytest.mark.parametrize("mark", ["", "x", "1:", "1:x", ":5", "-1:5", "1:2:3"])
def test_what_is_no_mark_is_refused_by_name(restored: Restored, mark: str) -> None:
    restored.orders.send(1)
    with pytest.raises(InvalidInput, match="not a mark"):
        restored.read(mark)


def test_the_end_of_a_quiet_trail_is_found_when_others_wrote_much(
    restored: Restored, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "NOTED_ENTRIES", 10)
    done(restored.orders, 3)
    mark = restored.store.engine.horizon("orders", "audit")
    others = restored.store.queue("others")
    for _ in range(9):
        done(others, 1)
    restored.store.sweep()
    own = apsw.Connection(str(restored.path))
    [(upto,)] = own.execute("select value from penstock_store where name = 'trail_upto'").fetchall()
    own.close()
    assert isinstance(upto, int)
    assert upto >= 10
    assert restored.store.engine.horizon("orders", "audit") == mark
    done(restored.orders, 2)
    assert len(restored.read(mark, "archive")) == 2
