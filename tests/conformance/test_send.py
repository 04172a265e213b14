"""send: (new) -> ready."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from penstock import Event, InvalidInput, InvalidName, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, take, take_all
from tests.conformance.clock import Clock


def test_an_id_that_penstock_makes_is_a_uuid_of_version_7_with_the_time_of_the_send(queue: Queue, clock: Clock) -> None:
    made = uuid.UUID(queue.send({"order": 1}))
    assert made.version == 7
    assert made.variant == uuid.RFC_4122
    assert made.int >> 80 == clock() // 1000


def test_a_message_is_found_as_it_was_sent(queue: Queue, clock: Clock) -> None:
    message_id = queue.send({"order": 1})
    message = queue.find(message_id)
    assert message.id == message_id
    assert message.queue == "orders"
    assert message.json() == {"order": 1}
    assert message.content_type == "application/json"
    assert message.created_at == clock.now
    assert message.available_at == clock.now
    assert message.created_by == "system"
    assert message.priority == 0
    assert message.headers == {}
    assert {message.expires_at, message.deadline_at, message.address, message.key, message.batch} == {None}


def test_every_option_of_a_send_reaches_the_delivery(queue: Queue, clock: Clock) -> None:
    deadline = clock.now + timedelta(seconds=5_003)
    chosen = "0190a1b2-c3d4-7e5f-8a6b-7c8d9e0f1a2b"
    queue.send(
        b"\x89raw",
        priority=5,
        ttl_seconds=613,
        deadline_at=deadline,
        address="customer/7",
        key="customer 7",
        headers={"trace": "17", "käse": "ü"},
        id=chosen,
        created_by="shop",
        content_type="image/png",
    )
    clock.advance(seconds=3)
    delivery = take(queue)
    assert delivery.id == chosen
    assert delivery.payload == b"\x89raw"
    assert delivery.priority == 5
    assert delivery.expires_at == clock.now + timedelta(seconds=610)
    assert delivery.deadline_at == deadline
    assert delivery.address == "customer/7"
    assert delivery.key == "customer 7"
    assert delivery.headers == {"trace": "17", "käse": "ü"}
    assert delivery.created_by == "shop"
    assert delivery.created_at == clock.now - timedelta(seconds=3)
    assert delivery.content_type == "image/png"
    assert delivery.queue == "orders"
    assert delivery.group == "default"
    assert delivery.batch is None


def test_find_shows_every_option_of_a_send(queue: Queue, clock: Clock) -> None:
    deadline = clock.now + timedelta(seconds=5_003)
    message_id = queue.send(
        b"x", priority=5, ttl_seconds=613, deadline_at=deadline, address="a 1", key="k 2", created_by="shop"
    )
    message = queue.find(message_id)
    assert (message.priority, message.address, message.key, message.created_by) == (5, "a 1", "k 2", "shop")
    assert message.expires_at == clock.now + timedelta(seconds=613)
    assert message.deadline_at == deadline


def test_positions_rise_with_every_send(queue: Queue) -> None:
    positions = [queue.find(queue.send(number)).position for number in range(5)]
    assert None not in positions
    assert positions == sorted(set(positions), key=lambda position: position or 0)


def test_a_queue_is_made_by_its_first_send(store: Store) -> None:
    assert store.queues() == []
    store.queue("fresh").send(1)
    assert [info.name for info in store.queues()] == ["fresh"]
    assert [store.engine.has(name) for name in ("fresh", "Fresh", "stale")] == [True, False, False]


def test_naming_a_queue_without_a_policy_changes_nothing(store: Store) -> None:
    store.queue("only named")
    assert store.queues() == []


def test_queues_do_not_see_the_messages_of_each_other(store: Store) -> None:
    first, second = store.queue("first"), store.queue("second")
    first.send("one")
    second.send("two")
    assert [delivery.json() for delivery in take_all(first)] == ["one"]
    assert [delivery.json() for delivery in take_all(second)] == ["two"]


def test_a_negative_delay_means_now(queue: Queue) -> None:
    message_id = queue.send(1, delay_seconds=-17)
    assert take(queue).id == message_id


def test_a_send_without_delay_or_ttl_takes_those_of_the_policy(store: Store, clock: Clock) -> None:
    queue = store.queue("slow", delay_seconds=23, ttl_seconds=613)
    message = queue.find(queue.send(1))
    assert message.available_at == clock.now + timedelta(seconds=23)
    assert message.expires_at is not None
    assert queue.receive() == []


def test_a_send_with_its_own_delay_and_ttl_overrides_the_policy(store: Store, clock: Clock) -> None:
    queue = store.queue("slow", delay_seconds=23, ttl_seconds=613)
    message_id = queue.send(1, delay_seconds=0, ttl_seconds=71)
    assert take(queue).id == message_id
    assert queue.find(message_id).expires_at == clock.now + timedelta(seconds=71)


def test_the_first_entry_of_the_audit_trail_is_the_send(queue: Queue, clock: Clock) -> None:
    [entry] = queue.audit(queue.send(1, created_by="shop"))
    assert (entry.at, entry.event, entry.state) == (clock.now, Event.SEND, State.READY)
    assert (entry.by, entry.group, entry.attempt) == ("shop", None, 0)


def test_a_deadline_in_another_time_zone_is_the_same_moment(queue: Queue) -> None:
    zoned = datetime.fromisoformat("2031-05-07T13:00:11+05:30")
    message_id = queue.send(1, deadline_at=zoned)
    assert queue.find(message_id).deadline_at == datetime(2031, 5, 7, 7, 30, 11, tzinfo=UTC)


BAD_OPTIONS: list[tuple[dict[str, Any], str]] = [
    ({"priority": -1}, "-1"),
    ({"priority": 1_000_001}, "1000001"),
    ({"priority": 1.5}, "1.5"),
    ({"priority": True}, "True"),
    ({"priority": "high"}, "'high'"),
    ({"priority": None}, "None"),
    ({"delay_seconds": float("nan")}, "nan"),
    ({"delay_seconds": float("inf")}, "inf"),
    ({"delay_seconds": "soon"}, "'soon'"),
    ({"delay_seconds": 10**12}, "1000000000000"),
    ({"ttl_seconds": 0}, "0"),
    ({"ttl_seconds": -3}, "-3"),
    ({"ttl_seconds": float("nan")}, "nan"),
    ({"ttl_seconds": False}, "False"),
    ({"deadline_at": datetime(2031, 5, 7)}, "2031-05-07"),
    ({"deadline_at": "tomorrow"}, "'tomorrow'"),
    ({"deadline_at": 1_900_000_000}, "1900000000"),
    ({"headers": ["a"]}, "['a']"),
    ({"headers": {"a": 1}}, "1"),
    ({"headers": {7: "a"}}, "7"),
    ({"headers": {"a": "\ud800"}}, "ud800"),
    ({"id": "not-a-uuid"}, "'not-a-uuid'"),
    ({"id": 17}, "17"),
    ({"id": ""}, "''"),
]


@pytest.mark.parametrize(("options", "named"), BAD_OPTIONS, ids=[str(options) for options, _ in BAD_OPTIONS])
def test_a_bad_option_is_refused_by_name_and_value_and_nothing_is_sent(
    queue: Queue, options: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        queue.send(1, **options)
    assert next(iter(options)) in str(caught.value)
    assert named in str(caught.value)
    assert queue.peek() == []
    assert_books_balance(queue, sent=0)


@pytest.mark.parametrize("option", ["address", "key", "created_by"])
@pytest.mark.parametrize("value", ["", "a\nb", "x" * 256, 17, b"bytes"])
def test_a_name_that_breaks_the_rule_for_names_is_refused(queue: Queue, option: str, value: Any) -> None:
    with pytest.raises(InvalidName, match=option):
        queue.send(1, **{option: value})
    assert queue.peek() == []


def test_an_unknown_option_is_an_error_and_not_ignored(queue: Queue) -> None:
    with pytest.raises(TypeError, match="delay"):
        queue.send(1, delay=5)  # type: ignore[call-arg]  # the mistake is the point
    assert queue.peek() == []
