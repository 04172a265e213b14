"""deadline_at: ends a lease; and, at_most_once only, the message."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import Event, LeaseLost, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, take, trail
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY


@pytest.fixture
def once(store: Store) -> Queue:
    return store.queue("once", **{**POLICY, "delivery": "at_most_once"})


def test_a_deadline_that_is_ahead_ends_the_lease_early(queue: Queue, clock: Clock) -> None:
    deadline = clock.now + timedelta(seconds=17)
    queue.send(1, deadline_at=deadline)
    assert take(queue).lease_ends_at == deadline


def test_a_deadline_after_the_lease_changes_nothing(queue: Queue, clock: Clock) -> None:
    queue.send(1, deadline_at=clock.now + timedelta(seconds=211))
    assert take(queue).lease_ends_at == clock.now + timedelta(seconds=37)


def test_at_least_once_another_may_take_the_message_when_its_deadline_has_passed(queue: Queue, clock: Clock) -> None:
    queue.send(1, deadline_at=clock.now + timedelta(seconds=17))
    holder = take(queue)
    clock.advance(seconds=18)
    successor = take(queue)
    assert successor.attempt == 2
    assert successor.lease_ends_at == clock.now + timedelta(seconds=37)
    with pytest.raises(LeaseLost):
        holder.ack()
    successor.ack()


def test_at_least_once_a_message_is_never_dropped_for_its_deadline(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send("passed", deadline_at=clock.now - timedelta(seconds=5))
    queue.send("will pass", deadline_at=clock.now + timedelta(seconds=5))
    queue.send("held", deadline_at=clock.now + timedelta(seconds=5), delay_seconds=9)
    clock.advance(seconds=10)
    assert store.sweep().expired == 0
    assert sorted(delivery.json() for delivery in queue.receive(limit=9)) == ["held", "passed", "will pass"]


def test_at_most_once_an_unread_message_expires_at_its_deadline(once: Queue, store: Store, clock: Clock) -> None:
    message_id = once.send(1, deadline_at=clock.now + timedelta(seconds=17))
    clock.advance(seconds=18)
    assert once.receive() == []
    store.sweep()
    [dead] = once.dead_letters()
    assert (dead.id, dead.outcome, dead.attempts) == (message_id, State.EXPIRED, 0)
    assert trail(once, message_id) == [(Event.SEND, State.READY), (Event.DEADLINE, State.EXPIRED)]
    assert_books_balance(once, sent=1)


def test_at_most_once_a_held_message_expires_at_its_deadline(once: Queue, store: Store, clock: Clock) -> None:
    message_id = once.send(1, delay_seconds=60, deadline_at=clock.now + timedelta(seconds=17))
    clock.advance(seconds=18)
    store.sweep()
    clock.advance(seconds=60)
    assert once.receive() == []
    assert once.dead_letters()[0].outcome is State.EXPIRED
    assert trail(once, message_id) == [(Event.SEND, State.HELD), (Event.DEADLINE, State.EXPIRED)]
    assert_books_balance(once, sent=1)


def test_at_most_once_a_leased_message_expires_at_its_deadline(once: Queue, store: Store, clock: Clock) -> None:
    message_id = once.send(1, deadline_at=clock.now + timedelta(seconds=17))
    holder = take(once)
    clock.advance(seconds=18)
    store.sweep()
    with pytest.raises(LeaseLost):
        holder.ack()
    assert once.receive() == []
    [dead] = once.dead_letters()
    assert (dead.outcome, dead.attempts) == (State.EXPIRED, 1)
    assert trail(once, message_id)[-1] == (Event.DEADLINE, State.EXPIRED)
    assert_trail_is_legal(once, message_id)


def test_at_most_once_a_message_waiting_for_a_retry_expires_at_its_deadline(
    once: Queue, store: Store, clock: Clock
) -> None:
    message_id = once.send(1, deadline_at=clock.now + timedelta(seconds=17))
    take(once).nak("busy", delay_seconds=60)
    clock.advance(seconds=61)
    assert once.receive() == []
    store.sweep()
    assert once.dead_letters()[0].outcome is State.EXPIRED
    assert_trail_is_legal(once, message_id)
    assert_books_balance(once, sent=1)


def test_at_most_once_a_message_sent_after_its_deadline_is_never_delivered(
    once: Queue, store: Store, clock: Clock
) -> None:
    once.send(1, deadline_at=clock.now - timedelta(seconds=5))
    assert once.receive() == []
    store.sweep()
    assert once.dead_letters()[0].outcome is State.EXPIRED
    assert_books_balance(once, sent=1)


def test_at_most_once_a_redriven_message_has_its_whole_time_again(once: Queue, store: Store, clock: Clock) -> None:
    once.send(1, deadline_at=clock.now + timedelta(seconds=17))
    clock.advance(seconds=18)
    store.sweep()
    assert once.redrive() == 1
    clock.advance(seconds=16)
    assert take(once).lease_ends_at == clock.now + timedelta(seconds=1)


def test_of_expiry_and_deadline_the_earlier_one_ends_the_lease(queue: Queue, clock: Clock) -> None:
    queue.send(1, ttl_seconds=19, deadline_at=clock.now + timedelta(seconds=17))
    queue.send(2, ttl_seconds=13, deadline_at=clock.now + timedelta(seconds=17))
    assert [(d.lease_ends_at - clock.now).total_seconds() for d in queue.receive(limit=2)] == [17, 13]
