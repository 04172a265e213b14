"""Staging: messages staged in parts, then sent exactly once in one transaction."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import InvalidInput, PayloadTooLarge, Queue, Store
from penstock.engines import sink_rows
from tests.conformance.assertions import payloads, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock

pyarrow = pytest.importorskip("pyarrow", reason="messages are staged as Arrow: needs pyarrow")


def batch(*rows: dict[str, Any]) -> Any:
    names = [name for name in sink_rows.COLUMNS if any(name in row for row in rows)]
    schema = pyarrow.schema([sink_rows.schema().field(name) for name in names])
    return pyarrow.RecordBatch.from_pylist(list(rows), schema=schema)


def plain(*numbers: int) -> Any:
    return batch(*({"payload": str(number).encode(), "content_type": "application/json"} for number in numbers))


def test_what_is_staged_is_seen_by_nobody_until_it_is_released(queue: Queue) -> None:
    engine = queue.engine
    assert engine.stage("orders", "job/1", "a", [plain(1, 2), plain(3)]) == 3
    assert engine.stage("orders", "job/1", "b", [plain(4)]) == 1
    assert take_all(queue) == []
    assert engine.release("orders", "job/1", ["b", "a"]) == 4
    assert payloads(take_all(queue)) == [4, 1, 2, 3]


def test_a_release_happens_once(queue: Queue, open_store: Opener) -> None:
    queue.engine.stage("orders", "job/1", "a", [plain(1)])
    assert queue.engine.release("orders", "job/1", ["a"]) == 1
    again = open_store().engine
    again.stage("orders", "job/1", "a2", [plain(1)])
    assert again.release("orders", "job/1", ["a2"]) is None
    assert again.release("orders", "job/1", ["a"]) is None
    assert payloads(take_all(queue)) == [1]
    assert list(queue.engine.ledger("sink")) == ["job/1/orders"]


def test_another_batch_and_another_queue_are_other_releases(queue: Queue, store: Store) -> None:
    for name, key in (("orders", "job/1"), ("orders", "job/2"), ("other", "job/1")):
        store.engine.stage(name, key, "a", [plain(7)])
        assert store.engine.release(name, key, ["a"]) == 1
    assert len(take_all(queue)) == 2
    assert len(take_all(store.queue("other"))) == 1


def test_parts_that_were_not_named_are_dropped(queue: Queue) -> None:
    engine = queue.engine
    engine.stage("orders", "job/1", "failed attempt", [plain(1, 2, 3)])
    engine.stage("orders", "job/1", "good attempt", [plain(1, 2, 3)])
    engine.stage("orders", "job/2", "next", [plain(4)])
    engine.release("orders", "job/1", ["good attempt"])
    engine.release("orders", "job/2", ["next"])
    assert payloads(take_all(queue)) == [1, 2, 3, 4]


def test_an_empty_release_is_remembered_too(queue: Queue) -> None:
    assert queue.engine.release("orders", "job/9", []) == 0
    queue.engine.stage("orders", "job/9", "late", [plain(1)])
    assert queue.engine.release("orders", "job/9", ["late"]) is None


def test_what_was_discarded_cannot_be_released(queue: Queue) -> None:
    queue.engine.stage("orders", "job/1", "a", [plain(1)])
    queue.engine.discard("orders", "job/1")
    assert queue.engine.release("orders", "job/1", ["a"]) == 0
    assert take_all(queue) == []


def test_every_option_arrives(queue: Queue, clock: Clock) -> None:
    chosen = "3f0f2f9e-6a53-4b52-8b33-5a1b6c0d7e21"
    rows = batch(
        {"payload": b"bare"},
        {"payload": b"full", "headers": '{"a":"1"}', "priority": 4, "key": "k", "address": "here", "id": chosen},
        {"payload": b"later", "delay_seconds": 31.5, "ttl_seconds": 900.0, "created_by": "spark"},
    )
    queue.engine.stage("orders", "job/1", "a", [rows])
    queue.engine.release("orders", "job/1", ["a"])
    bare, full = take_all(queue)
    message = queue.find(chosen)
    assert (bare.payload, full.payload) == (b"bare", b"full")
    assert (message.headers, message.priority, message.key, message.address) == ({"a": "1"}, 4, "k", "here")
    assert queue.stats("default").held == 1
    clock.advance(seconds=32)
    [later] = take_all(queue)
    found = queue.find(later.id)
    assert found.created_by == "spark"
    assert found.expires_at is not None
    assert found.content_type == "application/octet-stream"


@pytest.mark.parametrize("most", [3, 40])
def test_messages_of_several_priorities_are_served_by_priority(queue: Queue, most: int) -> None:
    rows = [{"payload": str(number).encode(), "priority": number % most or None} for number in range(80)]
    queue.engine.stage("orders", "job/1", "a", [batch(*rows)])
    assert queue.engine.release("orders", "job/1", ["a"]) == 80
    expected = sorted(range(80), key=lambda number: (number % most, number))
    assert [int(delivery.payload) for delivery in take_all(queue)] == expected


def test_the_policy_of_the_queue_holds(store: Store, clock: Clock) -> None:
    queue = store.queue("slow", delay_seconds=19, max_payload_bytes=100)
    with pytest.raises(PayloadTooLarge, match="101"):
        store.engine.stage("slow", "job/1", "a", [batch({"payload": b"x" * 101})])
    urgent = batch({"payload": b"7", "priority": 2}, {"payload": b"6"})
    store.engine.stage("slow", "job/1", "a", [plain(5), urgent])
    store.engine.release("slow", "job/1", ["a"])
    assert take_all(queue) == []
    clock.advance(seconds=20)
    assert [int(delivery.payload) for delivery in take_all(queue)] == [5, 6, 7]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"payload": b"x", "priority": -1}, "priority"),
        ({"payload": b"x", "headers": "[1]"}, "headers"),
        ({"payload": b"x", "headers": "{"}, "JSON"),
        ({"payload": b"x", "key": "a\nb"}, "key"),
        ({"payload": b"x", "id": "no uuid"}, "UUID"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_sent(queue: Queue, row: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        queue.engine.stage("orders", "job/1", "a", [batch(row)])
    assert queue.engine.release("orders", "job/1", ["a"]) == 0


def test_wrong_columns_are_refused(queue: Queue) -> None:
    for columns, said in (
        ({"body": pyarrow.array([b"x"])}, "payload"),
        ({"payload": pyarrow.array([b"x"]), "adress": pyarrow.array(["a"])}, "did you mean 'address'"),
        ({"payload": pyarrow.array(["x"])}, "binary"),
        ({"payload": pyarrow.array([b"x", None])}, "nulls"),
    ):
        with pytest.raises(InvalidInput, match=said):
            queue.engine.stage("orders", "job/1", "a", [pyarrow.record_batch(columns)])


def test_what_nobody_released_goes_after_a_day(queue: Queue, clock: Clock) -> None:
    queue.engine.stage("orders", "dead job/1", "a", [plain(1)])
    clock.advance(seconds=86_401)
    queue.engine.release("orders", "job/1", [])
    assert queue.engine.release("orders", "dead job/1", ["a"]) == 0
