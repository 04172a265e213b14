"""After the removal of single messages the trail stays readable, and kept marks stay valid."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Queue, Store
from penstock.engines.contract import Engine, Mark, Table
from tests.conformance.assertions import take, take_all
from tests.conformance.clock import Clock

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")


def read(engine: Engine, table: Table, start: Mark | None = None, parts: int = 1) -> list[dict[str, Any]]:
    start = engine.earliest("orders", table) if start is None else start
    window = engine.window("orders", start, engine.horizon("orders", table), parts, table)
    return [row for part in window for batch in engine.read(part) for row in batch.to_pylist()]


def test_what_happened_to_the_others_is_still_read_from_the_beginning(queue: Queue) -> None:
    ids = queue.send_many(list(range(9)))
    queue.ack_many(take_all(queue))
    begins = queue.engine.earliest("orders", "audit")
    assert queue.remove([ids[4], ids[8]]) == 2
    assert queue.engine.earliest("orders", "audit") == begins
    left = [one for one in ids if one not in (ids[4], ids[8])]
    for parts in (1, 3):
        assert [row["id"] for row in read(queue.engine, "archive", parts=parts)] == left
        assert sorted({row["id"] for row in read(queue.engine, "audit", parts=parts)}) == sorted(left)


def test_a_message_that_was_in_flight_does_not_move_the_beginning(queue: Queue) -> None:
    """Its last entry is the newest of all: the store ended it just now."""
    queue.send_many([1, 2, 3])
    queue.ack_many(take_all(queue))
    wrong = queue.send("wrong")
    take(queue)
    queue.remove([wrong])
    assert [row["payload"] for row in read(queue.engine, "archive", 0)] == [b"1", b"2", b"3"]


def test_a_reader_that_has_passed_the_last_entries_sees_the_next_ones(queue: Queue) -> None:
    first, second = queue.send_many([1, 2])
    take(queue).ack()
    mark = queue.engine.horizon("orders", "audit")
    queue.remove([first])
    take(queue).ack()
    rows = read(queue.engine, "audit", mark)
    assert [(row["id"], row["event"]) for row in rows] == [(second, "receive"), (second, "ack")]


def test_a_mark_behind_a_removed_message_stays_good(queue: Queue, store: Store, clock: Clock) -> None:
    _, last = queue.send_many([1, 2])
    mark = queue.engine.horizon("orders")
    queue.remove([last])
    queue.send(3)
    assert [row["payload"] for row in read(queue.engine, "messages", mark)] == [b"3"]
    queue.ack_many(take_all(queue))
    end = queue.engine.horizon("orders")
    store.sweep()
    clock.advance(seconds=7_003)
    assert store.sweep().trimmed == 2
    queue.send(4)
    assert [row["payload"] for row in read(queue.engine, "messages", end)] == [b"4"]


def test_a_follower_counts_what_is_left(queue: Queue) -> None:
    ids = queue.send_many([1, 2, 3, 4])
    queue.engine.advance("orders", "lake", queue.engine.horizon("orders", "audit"), "audit")
    queue.ack_many(take_all(queue))
    queue.remove([ids[1]])
    assert queue.stats("lake").lag == 3
