"""Windows with more messages than are counted: they are split by looking here and there, and whoever reads a part
notices that rows have gone since."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from penstock import Outgoing, Queue, RangeTrimmed, Store
from penstock.domain.results import Part

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")

MANY = 24_000
CHUNK = 4_000


def fill(queue: Queue) -> list[str]:
    ids = []
    for first in range(0, MANY, CHUNK):
        ids += queue.send_many([b"%d" % number for number in range(first, first + CHUNK)])
    return ids


def split(queue: Queue, parts: int = 3) -> list[Part]:
    return queue.engine.window("orders", 0, queue.engine.horizon("orders"), parts)


def read(queue: Queue, part: Part) -> list[bytes]:
    return [
        payload for batch in queue.engine.read(part, columns=["payload"]) for payload in batch["payload"].to_pylist()
    ]


def test_parts_are_of_like_size_and_hold_everything_once(queue: Queue) -> None:
    fill(queue)
    parts = split(queue, 4)
    assert not any(part.is_counted for part in parts)
    found = [read(queue, part) for part in parts]
    assert [payload for rows in found for payload in rows] == [b"%d" % number for number in range(MANY)]
    assert len(parts) == 4
    assert max(len(rows) for rows in found) <= 1.2 * min(len(rows) for rows in found)
    for part, rows in zip(parts, found, strict=True):
        assert 0.8 * len(rows) <= part.count <= 1.2 * len(rows)


def test_parts_are_of_like_size_beside_another_queue_that_comes_and_goes(queue: Queue, store: Store) -> None:
    """Half of the messages lie close together, the other half far apart."""
    other = store.queue("other")
    queue.send_many([b"%d" % number for number in range(MANY // 2)])
    for first in range(MANY // 2, MANY, 1_000):
        queue.send_many([b"%d" % number for number in range(first, first + 1_000)])
        other.send_many([b"other"] * 5_000)
    parts = split(queue, 4)
    found = [read(queue, part) for part in parts]
    assert [payload for rows in found for payload in rows] == [b"%d" % number for number in range(MANY)]
    assert len(parts) == 4
    assert max(len(rows) for rows in found) <= 2 * min(len(rows) for rows in found)


def test_one_large_transaction_with_lanes_and_a_late_commit_is_split_too(queue: Queue, postgres_url: str) -> None:
    queue.send_many([Outgoing(payload=b"first", priority=priority) for priority in range(3)])
    with psycopg.connect(postgres_url) as late:
        queue.send_many([b"late"] * 5, transaction=late)
        start = queue.engine.horizon("orders")
        sent = [Outgoing(payload=b"%d" % number, priority=number % 3) for number in range(MANY)]
        queue.send_many(sent)
        late.commit()
    parts = queue.engine.window("orders", start, queue.engine.horizon("orders"), 5)
    found = [read(queue, part) for part in parts]
    assert len(parts) == 5
    assert sorted(payload for rows in found for payload in rows) == sorted(
        [b"%d" % number for number in range(MANY)] + [b"late"] * 5
    )
    assert max(len(rows) for rows in found) <= 2 * min(len(rows) for rows in found)


def test_a_removed_message_is_missed_in_its_part_and_nowhere_else(queue: Queue) -> None:
    ids = fill(queue)
    parts = split(queue)
    first, middle, last = [len(read(queue, part)) for part in parts]
    assert first + middle + last == MANY
    assert queue.engine.remove("orders", [ids[MANY // 2]]) == 1
    assert (len(read(queue, parts[0])), len(read(queue, parts[2]))) == (first, last)
    with pytest.raises(RangeTrimmed, match="removed"):
        read(queue, parts[1])
    assert sum(len(read(queue, part)) for part in split(queue)) == MANY - 1, "a window that is split anew lacks it"


def flushed(queue: Queue) -> None:
    assert queue.flush() == MANY


def restored(queue: Queue) -> None:
    with psycopg.connect(queue.engine.database.url) as connection:  # type: ignore[attr-defined]
        connection.execute("update penstock.store set epoch = epoch + 1")


@pytest.mark.parametrize("gone", [flushed, restored])
def test_when_all_are_gone_every_part_misses_its_rows(queue: Queue, gone: Callable[[Queue], None]) -> None:
    fill(queue)
    parts = split(queue)
    gone(queue)
    for part in parts:
        with pytest.raises(RangeTrimmed):
            read(queue, part)


def test_a_part_that_is_past_retention_is_refused_whether_its_rows_are_deleted_or_not(
    store: Store, queue: Queue
) -> None:
    fill(queue)
    while deliveries := queue.receive(limit=MANY // 2):
        queue.ack_many(deliveries)
    queue.send_many([b"later"] * 100)
    parts = queue.engine.window("orders", 0, queue.engine.horizon("orders"), 3)
    assert queue.engine.trim("orders", keep=50) == MANY + 50
    for sweeps in (False, True):
        if sweeps:
            store.sweep()
        for part in parts:
            with pytest.raises(RangeTrimmed, match="past retention"):
                read(queue, part)
    assert [row for part in split_from_earliest(queue) for row in read(queue, part)] == [b"later"] * 50


def split_from_earliest(queue: Queue) -> list[Part]:
    return queue.engine.window("orders", queue.engine.earliest("orders"), queue.engine.horizon("orders"), 1)


def test_a_trail_can_be_read_on_after_messages_were_removed(queue: Queue) -> None:
    """A reader of the parts split before detects that it is missing."""
    engine = queue.engine
    ids = queue.send_many([1, 2, 3])
    queue.ack_many(queue.receive(limit=3))
    [before] = engine.window("orders", 0, engine.horizon("orders", "archive"), 1, "archive")
    engine.remove("orders", [ids[1]])
    with pytest.raises(RangeTrimmed, match="removed"):
        list(engine.read(before))
    [after] = engine.window("orders", 0, engine.horizon("orders", "archive"), 1, "archive")
    assert [row for batch in engine.read(after) for row in batch["payload"].to_pylist()] == [b"1", b"3"]
