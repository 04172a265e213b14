"""Windows of the archive, the audit and the dead letters."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from penstock import GroupMisused, Outgoing, Queue, RangeTrimmed, Store
from penstock.domain.errors import InvalidInput
from penstock.domain.validation import from_time
from penstock.engines.contract import Engine, Mark, Table
from tests.conformance.assertions import take, take_all
from tests.conformance.clock import Clock

pytest.importorskip("pyarrow", reason="windows are read as Arrow: needs pyarrow")
from penstock.engines import tables


def read(
    engine: Engine,
    table: Table,
    start: Mark | None = None,
    end: Mark | None = None,
    *,
    queue: str = "orders",
    parts: int = 1,
    columns: list[str] | None = None,
    batch_rows: int = 10_000,
) -> list[dict[str, Any]]:
    start = engine.earliest(queue, table) if start is None else start
    end = engine.horizon(queue, table) if end is None else end
    rows: list[dict[str, Any]] = []
    for part in engine.window(queue, start, end, parts, table):
        batches = list(engine.read(part, batch_rows, columns))
        assert all(batch.schema.equals(tables.schema(table, columns)) for batch in batches)
        assert all(0 < batch.num_rows <= batch_rows for batch in batches)
        assert sum(batch.num_rows for batch in batches) == part.count
        rows += [row for batch in batches for row in batch.to_pylist()]
    return rows


def some_life(queue: Queue, clock: Clock) -> list[str]:
    """Six messages: two succeed, one is rejected, one is retried, one waits, and one expires while held."""
    ids = [
        queue.send({"n": 1}, headers={"trace": "t-1"}, created_by="shop"),
        queue.send(b"two", priority=3, key="k-2"),
        queue.send("three", id="0b5a0d5e-8f0f-4e54-9d1e-0c4a9d1c1f33", address="a-3"),
        queue.send("four", ttl_seconds=9_000),
        queue.send("five", priority=9),
        queue.send("late", delay_seconds=500, ttl_seconds=11),
    ]
    first, third, fourth, second = queue.receive(limit=4)
    first.ack("fine")
    clock.advance(seconds=2)
    third.reject("bad address")
    fourth.nak("busy", delay_seconds=0)
    second.ack()
    take(queue).ack()
    clock.advance(seconds=12)
    queue.store.sweep()
    return ids


def test_the_archive_has_each_ending_in_the_order_of_ending(queue: Queue, clock: Clock) -> None:
    ids = some_life(queue, clock)
    rows = read(queue.engine, "archive")
    assert [row["id"] for row in rows] == [ids[0], ids[2], ids[1], ids[3], ids[5]]
    assert [row["outcome"] for row in rows] == ["succeeded", "rejected", "succeeded", "succeeded", "expired"]
    assert [row["attempts"] for row in rows] == [1, 1, 1, 2, 0]
    assert [row["reason"] for row in rows][:2] == ["fine", "bad address"]
    assert [row["entry"] for row in rows] == sorted({row["entry"] for row in rows})
    assert rows[0]["headers"] == '{"trace":"t-1"}'
    assert rows[0]["created_by"] == "shop"
    assert rows[2]["payload"] == b"two"
    assert rows[2]["priority"] == 3
    assert rows[2]["content_type"] == "application/octet-stream"
    # A message that ended while held ended in all groups.
    assert [row["group"] for row in rows] == ["default"] * 4 + [None]
    assert rows[4]["priority"] == 0


def test_the_archive_says_what_the_queue_says(queue: Queue, clock: Clock) -> None:
    some_life(queue, clock)
    ended = {one.message.id: one for one in queue.archive()}
    for row in read(queue.engine, "archive"):
        one = ended[row["id"]]
        assert (row["outcome"], row["reason"], row["attempts"]) == (one.outcome, one.reason, one.attempts)
        assert row["finished_at"] == one.finished_at
        assert row["available_at"] == one.message.available_at
        assert row["expires_at"] == one.message.expires_at


def test_the_audit_table_is_the_trail_of_every_message_after_its_send(queue: Queue, clock: Clock) -> None:
    ids = some_life(queue, clock)
    trails: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in read(queue.engine, "audit", parts=3, batch_rows=2):
        entry = (row["at"], row["event"], row["state"], row["by"], row["group"], row["reason"], row["attempt"])
        trails[row["id"]].append(entry)
    for message_id in ids:
        sent, *rest = queue.audit(message_id)
        assert sent.event == "send"
        assert trails[message_id] == [
            (one.at, one.event, one.state, one.by, one.group, one.reason, one.attempt) for one in rest
        ]


def test_rows_of_one_receive_share_its_token(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    deliveries = take_all(queue)
    tokens = {row["token"] for row in read(queue.engine, "audit") if row["event"] == "receive"}
    assert tokens == {deliveries[0].token}


def test_a_window_on_endings_read_twice_gives_the_same_rows(queue: Queue, clock: Clock) -> None:
    some_life(queue, clock)
    engine = queue.engine
    end = engine.horizon("orders", "archive")
    before = {table: read(engine, table, 0, end) for table in ("archive", "audit")}
    queue.redrive()
    queue.ack_many(take_all(queue))
    queue.send_many([7, 8])
    queue.ack_many(take_all(queue, group="other"))
    for table, rows in before.items():
        assert read(engine, table, 0, end) == rows  # type: ignore[arg-type]
        assert rows


def test_a_message_that_is_redriven_and_ends_again_has_another_row(queue: Queue) -> None:
    message_id = queue.send("again")
    take(queue).reject("no")
    middle = queue.engine.horizon("orders", "archive")
    queue.redrive()
    take(queue).ack()
    rows = read(queue.engine, "archive")
    assert [(row["id"], row["outcome"]) for row in rows] == [(message_id, "rejected"), (message_id, "succeeded")]
    assert rows[0]["entry"] < rows[1]["entry"]
    assert [row["outcome"] for row in read(queue.engine, "archive", middle)] == ["succeeded"]


def test_each_group_has_its_own_rows(queue: Queue) -> None:
    queue.send_many([1, 2])
    queue.ack_many(take_all(queue))
    for delivery in take_all(queue, group="second"):
        delivery.reject("not mine")
    rows = read(queue.engine, "archive")
    assert [(row["group"], row["outcome"]) for row in rows] == [("default", "succeeded")] * 2 + [
        ("second", "rejected")
    ] * 2


@pytest.mark.parametrize("headers", [None, {"trace": "t"}])
def test_parts_of_the_trail_hold_everything_once(queue: Queue, headers: dict[str, str] | None) -> None:
    queue.send_many([Outgoing(payload=number, headers=headers) for number in range(60)])
    for _ in range(20):
        queue.ack_many(queue.receive(limit=3))
    parts = queue.engine.window("orders", 0, queue.engine.horizon("orders", "archive"), 4, "archive")
    assert 1 < len(parts) <= 4
    rows = read(queue.engine, "archive", parts=4, batch_rows=7)
    assert [row["payload"] for row in rows] == [str(number).encode() for number in range(60)]
    events = [(row["position"], row["event"]) for row in read(queue.engine, "audit", parts=3, batch_rows=5)]
    assert sorted(events) == sorted((row["position"], event) for row in rows for event in ("receive", "ack"))


def test_only_the_columns_asked_for_are_read(queue: Queue, clock: Clock) -> None:
    some_life(queue, clock)
    rows = read(queue.engine, "archive", columns=["outcome", "id"])
    assert [list(row) for row in rows] == [["outcome", "id"]] * 5
    assert all(list(row) == ["id", "payload"] for row in read(queue.engine, "messages", columns=["id", "payload"]))


@pytest.mark.parametrize("columns", [["idd"], [], ["id", "id"], ["outcome"]])
def test_columns_that_are_not_there_are_refused(queue: Queue, columns: list[str]) -> None:
    queue.send(1)
    [part] = queue.engine.window("orders", 0, queue.engine.horizon("orders"), 1)
    with pytest.raises(InvalidInput, match="column"):
        queue.engine.read(part, 10, columns)


def test_dead_letters_are_read_as_they_are_now(queue: Queue, clock: Clock) -> None:
    some_life(queue, clock)
    queue.send("six", headers={"a": "b"})
    for delivery in take_all(queue, group="second"):
        delivery.reject("no " + delivery.id)
    letters = {(one.id, one.group): one for one in queue.dead_letters(group="second", limit=100)}
    letters |= {(one.id, one.group): one for one in queue.dead_letters(limit=100)}
    rows = read(queue.engine, "dead_letters", parts=3, batch_rows=2)
    assert {(row["id"], row["group"]) for row in rows} == set(letters)
    assert len(rows) == len(letters)
    for row in rows:
        one = letters[row["id"], row["group"]]
        assert (row["outcome"], row["reason"], row["attempts"]) == (one.outcome, one.reason, one.attempts)
        assert (row["payload"], row["died_at"]) == (one.payload, one.died_at)
    queue.redrive(group="second")
    assert {row["group"] for row in read(queue.engine, "dead_letters")} == {"default"}


def test_a_trail_that_is_past_retention_is_refused_by_name(queue: Queue, store: Store, clock: Clock) -> None:
    engine = queue.engine
    queue.send_many([1, 2, 3])
    kept = queue.send("kept")
    *done, last = take_all(queue)
    queue.ack_many(done)
    last.reject("no")
    store.sweep()
    clock.advance(seconds=7_003)
    assert store.sweep().trimmed == 3
    assert [letter.id for letter in queue.dead_letters()] == [kept]
    queue.send(4)
    take(queue).ack()
    with pytest.raises(RangeTrimmed, match="archive"):
        read(engine, "archive", 0)
    assert [row["payload"] for row in read(engine, "archive")] == [b"4"]
    assert [row["event"] for row in read(engine, "audit")] == ["receive", "ack"]


def test_a_follower_of_the_trail_holds_back_trimming_until_it_has_passed(
    queue: Queue, store: Store, clock: Clock
) -> None:
    engine, other = queue.engine, store.queue("other")
    for _ in range(9):  # so that entries and messages have different counts
        other.send(0)
        take(other).nak("no", delay_seconds=0)
        take(other).ack()
    queue.send_many([1, 2])
    engine.advance("orders", "lake", engine.horizon("orders", "archive"), "archive")
    queue.ack_many(take_all(queue))
    assert queue.stats("lake").lag == 2
    for _ in range(2):
        store.sweep()
        clock.advance(seconds=7_003)
    assert store.sweep().trimmed == 0
    start, end = engine.stream_position("orders", "lake"), engine.horizon("orders", "archive")
    assert [row["payload"] for row in read(engine, "archive", start, end)] == [b"1", b"2"]
    engine.advance("orders", "lake", end, "archive")
    assert queue.stats("lake").lag == 0
    store.sweep()
    clock.advance(seconds=7_003)
    assert store.sweep().trimmed == 2
    assert read(engine, "archive", end) == []


def test_an_old_dead_letter_that_ends_again_waits_for_the_follower(queue: Queue, store: Store, clock: Clock) -> None:
    engine = queue.engine
    ids = [queue.send("old"), queue.send("other")]
    for delivery in take_all(queue):
        delivery.reject("no")
    mark = engine.horizon("orders", "archive")
    engine.advance("orders", "lake", mark, "archive")
    store.sweep()
    clock.advance(seconds=7_003)
    store.sweep()
    clock.advance(seconds=80_000)
    queue.redrive(ids=[ids[0]])
    take(queue).ack()
    engine.advance("orders", "lake", mark, "archive")
    clock.advance(seconds=5_000)
    assert store.sweep().purged == 1
    rows = read(engine, "archive", mark)
    assert [(row["id"], row["outcome"]) for row in rows] == [(ids[0], "succeeded")]


def test_a_group_streams_one_table(queue: Queue) -> None:
    queue.send(1)
    queue.engine.advance("orders", "lake", 0, "audit")
    queue.engine.advance("orders", "lake", 0, "archive")
    with pytest.raises(GroupMisused, match="lake"):
        queue.engine.advance("orders", "lake", 0, "messages")
    with pytest.raises(GroupMisused, match="lake"):
        queue.receive(group="lake")
    with pytest.raises(InvalidInput):
        queue.engine.advance("orders", "letters", 0, "dead_letters")


def test_nothing_behind_the_horizon_comes_back_after_a_flush(queue: Queue) -> None:
    engine = queue.engine
    queue.send_many([1, 2])
    queue.ack_many(take_all(queue))
    before = engine.horizon("orders", "archive")
    queue.flush()
    assert engine.horizon("orders", "archive") == before
    assert engine.earliest("orders", "archive") == before
    queue.send("new")
    take(queue).ack()
    assert [row["payload"] for row in read(engine, "archive", before)] == [b'"new"']
    with pytest.raises(RangeTrimmed):
        read(engine, "archive", 0)


def test_a_forgotten_group_takes_its_trail_along(queue: Queue) -> None:
    engine = queue.engine
    queue.send(1)
    take(queue).ack()
    take(queue, group="second").ack()
    engine.forget("orders", "second")
    with pytest.raises(RangeTrimmed):
        read(engine, "archive", 0)
    end = engine.horizon("orders", "archive")
    queue.send(2)
    take(queue).ack()
    assert [row["payload"] for row in read(engine, "archive", end)] == [b"2"]


def test_the_trail_is_cut_between_entries(queue: Queue) -> None:
    queue.send_many(list(range(9)))
    for _ in range(3):
        queue.ack_many(queue.receive(limit=3))
    engine, end = queue.engine, queue.engine.horizon("orders", "archive")
    middle = engine.cut("orders", 0, end, 7, table="archive")
    assert len(read(engine, "archive", 0, middle)) == 6
    assert len(read(engine, "archive", middle, end)) == 3
    assert len(read(engine, "archive", 0, engine.cut("orders", 0, end, 1, table="archive"))) == 3
    assert engine.cut("orders", 0, end, None, table="archive") == end


def test_an_unknown_table_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(InvalidInput, match="did you mean 'archive'"):
        tables.check_table("archiv")


def test_a_mark_of_a_time_is_behind_what_was_sent_before_it(queue: Queue, clock: Clock) -> None:
    queue.send("early")
    clock.advance(seconds=60)
    moment = from_time("moment", clock.now)
    clock.advance(seconds=60)
    queue.send("late")
    rows = read(queue.engine, "messages", queue.engine.mark_at("orders", moment))
    assert [row["payload"] for row in rows] == [b'"late"']
