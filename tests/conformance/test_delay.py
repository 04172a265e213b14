"""delay_seconds: held -> ready when due; never early."""

from __future__ import annotations

import uuid
from datetime import timedelta

from penstock import Event, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all, trail
from tests.conformance.clock import Clock


def test_a_delayed_message_is_held_until_it_is_due(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=13.5)
    clock.advance(seconds=13.4)
    assert queue.receive() == []
    clock.advance(seconds=0.2)
    assert take(queue).id == message_id


def test_a_receive_promotes_due_messages_without_a_sweep_and_the_audit_shows_it(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=13)
    clock.advance(seconds=14)
    take(queue)
    assert trail(queue, message_id) == [
        (Event.SEND, State.HELD),
        (Event.DUE, State.READY),
        (Event.RECEIVE, State.LEASED),
    ]


def test_a_sweep_promotes_due_messages_and_counts_them(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, delay_seconds=13)
    queue.send(2, delay_seconds=17)
    assert store.sweep().promoted == 0
    clock.advance(seconds=14)
    assert store.sweep().promoted == 1
    stats = assert_books_balance(queue, sent=2)
    assert (stats.held, stats.available) == (1, 1)
    clock.advance(seconds=4)
    assert store.sweep().promoted == 1
    assert payloads(take_all(queue)) == [1, 2]


def test_a_held_message_has_no_position_until_it_is_due(queue: Queue, clock: Clock) -> None:
    message_id = queue.send({"late": True}, delay_seconds=13, headers={"a": "b"}, key="k", priority=3)
    held = queue.find(message_id)
    assert held.position is None
    assert held.available_at == clock.now + timedelta(seconds=13)
    assert (held.json(), held.headers, held.key, held.priority) == ({"late": True}, {"a": "b"}, "k", 3)
    clock.advance(seconds=14)
    delivery = take(queue)
    found = queue.find(message_id)
    assert found.position == delivery.position
    assert found.available_at == held.available_at
    assert found.created_at == held.created_at


def test_a_held_message_keeps_its_id_and_its_time_of_creation(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=13)
    created_at = clock.now
    assert uuid.UUID(message_id).version == 7
    clock.advance(seconds=14)
    delivery = take(queue)
    assert (delivery.id, delivery.created_at) == (message_id, created_at)


def test_held_messages_have_ids_of_their_own(queue: Queue) -> None:
    assert len({queue.send(number, delay_seconds=13) for number in range(20)}) == 20


def test_a_held_message_is_counted_as_held_and_nothing_else(queue: Queue) -> None:
    queue.send(1, delay_seconds=13)
    stats = assert_books_balance(queue, sent=1)
    assert (stats.held, stats.available, stats.total, stats.lag) == (1, 0, 1, 0)


def test_every_group_gets_a_delayed_message_when_it_is_due(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=13)
    assert queue.receive(group="billing") == []
    clock.advance(seconds=14)
    assert take(queue, group="billing").id == message_id
    assert take(queue).id == message_id
    assert_trail_is_legal(queue, message_id)
    assert_trail_is_legal(queue, message_id, "billing")


def test_the_ttl_of_a_delayed_message_keeps_it_from_living_for_ever(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=13, ttl_seconds=613)
    expires_at = queue.find(message_id).expires_at
    assert expires_at is not None
    clock.move_to(expires_at + timedelta(seconds=1))
    assert queue.receive() == []


def test_a_hundred_messages_due_at_different_times_come_when_they_are_due(queue: Queue, clock: Clock) -> None:
    for number in range(100):
        queue.send(number, delay_seconds=1 + number * 7 % 100)
    for elapsed in range(1, 102):
        clock.advance(seconds=1.0)
        expected = [number for number in range(100) if 1 + number * 7 % 100 == elapsed]
        assert payloads(take_all(queue, lease_seconds=1_009)) == expected
