"""Windows: how the pipeline reads the log, by position and without leases."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from penstock import GroupMisused, Queue, RangeTrimmed, Store
from penstock.domain.validation import from_time
from penstock.engines.contract import Engine, Mark
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock
from tests.conformance.engines import EngineRow

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")


def read(
    engine: Engine, queue: str, start: Mark, end: Mark, parts: int = 1, batch_rows: int = 10_000
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for part in engine.window(queue, start, end, parts):
        read_rows = [row for batch in engine.read(part, batch_rows) for row in batch.to_pylist()]
        assert len(read_rows) == part.count
        rows += read_rows
    return rows


def later(mark: Mark, by: int) -> Mark:
    """A mark of another history of the store."""
    assert isinstance(mark, str)
    if "/" not in mark:
        position, at = mark.split(":")
        return f"{int(position) + by}:{at}"
    snapshot = mark.split("/")[1]
    end = int(snapshot.split(":")[1]) + by
    return mark.replace(snapshot, f"{end}:{end}:")


def positions_of(queue: Queue, sent: list[str]) -> list[int]:
    positions = [queue.find(message_id).position for message_id in sent]
    assert None not in positions
    return [position or 0 for position in positions]


def test_the_horizon_moves_with_every_send(queue: Queue) -> None:
    engine = queue.engine
    before = engine.horizon("orders")
    queue.send(1)
    after = engine.horizon("orders")
    assert after != before
    assert engine.horizon("orders") == after
    assert len(read(engine, "orders", before, after)) == 1


def test_a_window_holds_what_was_sent_between_two_horizons(queue: Queue) -> None:
    engine = queue.engine
    queue.send("before")
    start = engine.horizon("orders")
    sent = queue.send_many([1, 2, 3])
    end = engine.horizon("orders")
    queue.send("after")
    rows = read(engine, "orders", start, end)
    assert [row["payload"] for row in rows] == [b"1", b"2", b"3"]
    assert [row["position"] for row in rows] == positions_of(queue, sent)


def test_a_window_read_twice_gives_the_same_rows_whatever_groups_did(queue: Queue, clock: Clock) -> None:
    engine = queue.engine
    queue.send_many(list(range(10)))
    end = engine.horizon("orders")
    before = read(engine, "orders", 0, end)
    deliveries = take_all(queue)
    deliveries[0].reject("no")
    deliveries[1].nak("busy")
    queue.ack_many(deliveries[2:])
    clock.advance(seconds=38)
    assert read(engine, "orders", 0, end) == before


def test_parts_split_a_window_without_losing_or_doubling_anything(queue: Queue) -> None:
    engine = queue.engine
    queue.send_many(list(range(103)))
    end = engine.horizon("orders")
    parts = engine.window("orders", 0, end, 4)
    assert 1 < len(parts) <= 4
    assert sum(part.count for part in parts) == 103
    assert max(part.count for part in parts) <= 2 * min(part.count for part in parts)
    assert sorted(int(row["payload"]) for row in read(engine, "orders", 0, end, parts=4)) == list(range(103))


def test_record_batches_are_no_larger_than_asked_for(queue: Queue) -> None:
    engine = queue.engine
    queue.send_many(list(range(25)))
    [part] = engine.window("orders", 0, engine.horizon("orders"), 1)
    sizes = [batch.num_rows for batch in engine.read(part, 10)]
    assert sum(sizes) == 25
    assert max(sizes) <= 10


def test_a_window_holds_only_its_own_queue(queue: Queue, store: Store) -> None:
    other = store.queue("other")
    for number in range(6):
        (queue if number % 2 else other).send(number)
    end = queue.engine.horizon("orders")
    assert [row["payload"] for row in read(queue.engine, "orders", 0, end)] == [b"1", b"3", b"5"]


def test_every_priority_and_shard_is_in_a_window(store: Store) -> None:
    queue = store.queue("sharded", shards=3)
    for number in range(12):
        queue.send(number, priority=number % 4, key=f"key {number}")
    rows = read(queue.engine, "sharded", 0, queue.engine.horizon("sharded"))
    assert sorted(int(row["payload"]) for row in rows) == list(range(12))


def test_an_empty_window_has_no_rows(queue: Queue) -> None:
    queue.send(1)
    end = queue.engine.horizon("orders")
    assert read(queue.engine, "orders", end, end) == []


def test_a_held_message_is_in_the_window_in_which_it_became_due(queue: Queue, store: Store, clock: Clock) -> None:
    engine = queue.engine
    queue.send("held", delay_seconds=13)
    queue.send("ready")
    middle = engine.horizon("orders")
    assert [row["payload"] for row in read(engine, "orders", 0, middle)] == [b'"ready"']
    clock.advance(seconds=14)
    store.sweep()
    assert [row["payload"] for row in read(engine, "orders", middle, engine.horizon("orders"))] == [b'"held"']


def test_a_time_is_found_as_the_last_position_sent_before_it(queue: Queue, clock: Clock) -> None:
    engine = queue.engine
    [early] = positions_of(queue, [queue.send("early")])
    clock.advance(seconds=60)
    [late] = positions_of(queue, [queue.send("late")])
    moment = from_time("moment", clock.now - timedelta(seconds=10))
    assert early <= engine.position_at("orders", moment) < late


def test_a_window_is_cut_by_rows(queue: Queue, store: Store) -> None:
    engine, other = queue.engine, store.queue("other")
    for number in range(10):
        queue.send(number, priority=number % 3)
        other.send_many(["x"] * 70 if number % 4 == 0 else ["y"])
    start, end = engine.earliest("orders"), engine.horizon("orders")
    middle = engine.cut("orders", start, end, 4)
    assert [row["payload"] for row in read(engine, "orders", start, middle)] == [b"0", b"1", b"2", b"3"]
    rest = engine.cut("orders", middle, end, 100)
    assert [int(row["payload"]) for row in read(engine, "orders", middle, rest, parts=3)] == [4, 5, 6, 7, 8, 9]
    assert engine.cut("orders", start, end, None) == end


def test_a_window_is_cut_by_bytes_but_never_to_nothing(queue: Queue) -> None:
    engine = queue.engine
    queue.send_many([b"a" * 100, b"b" * 100, b"c" * 300, b"d"])
    start, end = engine.earliest("orders"), engine.horizon("orders")
    first = engine.cut("orders", start, end, None, 250)
    assert [row["payload"][:1] for row in read(engine, "orders", start, first)] == [b"a", b"b"]
    second = engine.cut("orders", first, end, 5, 250)
    assert [row["payload"][:1] for row in read(engine, "orders", first, second)] == [b"c"]
    assert [row["payload"] for row in read(engine, "orders", second, end)] == [b"d"]


def test_a_row_has_every_column_of_its_message(queue: Queue) -> None:
    queue.send_many([b"plain"] * 3)
    chosen = "7d3c1f0a-52d4-4c1d-8a0c-3f5a1f6f0c11"
    full = queue.send(
        {"n": 5}, id=chosen, headers={"a": "é"}, priority=2, ttl_seconds=77, address="here", key="k", created_by="me"
    )
    rows = read(queue.engine, "orders", 0, queue.engine.horizon("orders"), batch_rows=2)
    assert len(rows) == 4
    for row in rows:
        message = queue.find(row["id"])
        for field in ("queue", "payload", "content_type", "priority", "position", "created_at", "created_by"):
            assert row[field] == getattr(message, field), field
        for field in ("available_at", "expires_at", "deadline_at", "address", "key", "batch"):
            assert row[field] == getattr(message, field), field
    assert rows[3]["id"] == full == chosen
    assert rows[3]["headers"] == '{"a":"é"}'
    assert rows[0]["headers"] is None


def test_the_epoch_is_the_same_for_everybody_and_other_for_another_store(
    queue: Queue, open_store: Opener, tmp_path: Path, engine_row: EngineRow
) -> None:
    assert open_store().engine.epoch() == queue.engine.epoch()
    other = tmp_path / "other"
    other.mkdir()
    assert open_store(engine_row.fresh_url(other)).engine.epoch() != queue.engine.epoch()


def test_rows_that_are_flushed_while_they_are_read_are_there_or_missed(queue: Queue) -> None:
    """An engine may read from one snapshot, or report missing rows; it never omits them silently."""
    engine = queue.engine
    queue.send_many(list(range(20)))
    [part] = engine.window("orders", 0, engine.horizon("orders"), 1)
    batches = engine.read(part, 10)
    count = next(batches).num_rows
    queue.flush()
    told = ""
    try:
        count += sum(batch.num_rows for batch in batches)
    except RangeTrimmed as error:
        told = str(error)
    assert count == 20 or "10 of 20" in told


def test_a_window_that_begins_beyond_the_end_is_refused(queue: Queue) -> None:
    """As when a store was restored from an older copy."""
    queue.send(1)
    end = queue.engine.horizon("orders")
    with pytest.raises(RangeTrimmed, match="older"):
        queue.engine.window("orders", later(end, 1_000_005), later(end, 1_000_009), 1)


def test_the_last_position_stays_when_its_message_is_gone(queue: Queue) -> None:
    [position] = positions_of(queue, [queue.send(1)])
    assert queue.engine.last_position("orders") == position
    queue.flush()
    assert queue.engine.last_position("orders") == position


def test_a_trimmed_window_is_refused_by_name(queue: Queue, store: Store, clock: Clock) -> None:
    engine = queue.engine
    queue.send_many([1, 2, 3])
    queue.ack_many(take_all(queue))
    store.sweep()
    clock.advance(seconds=7_003)
    assert store.sweep().trimmed == 3
    queue.send(4)
    with pytest.raises(RangeTrimmed):
        engine.window("orders", 0, engine.horizon("orders"), 1)
    rows = read(engine, "orders", engine.earliest("orders"), engine.horizon("orders"))
    assert [row["payload"] for row in rows] == [b"4"]


def test_a_stream_group_moves_by_position(queue: Queue) -> None:
    engine = queue.engine
    assert engine.stream_position("orders", "lake") is None
    queue.send_many([1, 2, 3])
    end = engine.horizon("orders")
    engine.advance("orders", "lake", end)
    assert engine.stream_position("orders", "lake") == end
    queue.send(4)
    assert queue.stats("lake").lag == 1
    assert "lake" in queue.groups()


def test_a_stream_group_never_moves_back(queue: Queue) -> None:
    engine = queue.engine
    queue.send_many([1, 2, 3])
    end = engine.horizon("orders")
    middle = engine.cut("orders", engine.earliest("orders"), end, 1)
    engine.advance("orders", "lake", end)
    engine.advance("orders", "lake", middle)
    assert middle != end
    assert engine.stream_position("orders", "lake") == end


def test_a_stream_group_cannot_receive(queue: Queue) -> None:
    queue.send(1)
    queue.engine.advance("orders", "lake", 0)
    with pytest.raises(GroupMisused, match="lake"):
        queue.receive(group="lake")


def test_a_group_with_leases_cannot_be_a_stream(queue: Queue) -> None:
    queue.send(1)
    take(queue)
    with pytest.raises(GroupMisused, match="default"):
        queue.engine.advance("orders", "default", queue.engine.horizon("orders"))
    assert queue.stats("default").in_progress == 1


def test_a_stream_group_holds_back_trimming_until_it_has_passed(queue: Queue, store: Store, clock: Clock) -> None:
    engine = queue.engine
    engine.advance("orders", "lake", 0)
    queue.send(1)
    take(queue).ack()
    store.sweep()
    clock.advance(seconds=7_003)
    assert store.sweep().trimmed == 0
    engine.advance("orders", "lake", engine.horizon("orders"))
    store.sweep()
    clock.advance(seconds=7_003)
    assert store.sweep().trimmed == 1


def test_streams_and_leases_read_the_same_log_side_by_side(queue: Queue) -> None:
    engine = queue.engine
    queue.send_many([1, 2])
    engine.advance("orders", "lake", engine.horizon("orders"))
    assert payloads(take_all(queue)) == [1, 2]
    assert len(read(engine, "orders", 0, engine.horizon("orders"))) == 2
