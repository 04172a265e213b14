"""at_most_once: delivered again only after an explicit nak."""

from __future__ import annotations

import pytest

from penstock import Event, LeaseLost, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, nonzero, take, take_all, trail
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY


@pytest.fixture
def once(store: Store) -> Queue:
    return store.queue("once", **{**POLICY, "delivery": "at_most_once"})


def test_a_lapsed_lease_ends_the_message(once: Queue, store: Store, clock: Clock) -> None:
    message_id = once.send(1)
    take(once)
    clock.advance(seconds=38)
    assert once.receive() == []
    store.sweep()
    [dead] = once.dead_letters()
    assert (dead.id, dead.outcome, dead.attempts) == (message_id, State.LEASE_EXPIRED, 1)
    assert trail(once, message_id)[-1] == (Event.LEASE_END, State.LEASE_EXPIRED)
    assert_books_balance(once, sent=1)


def test_an_explicit_nak_hands_it_out_again(once: Queue) -> None:
    message_id = once.send(1)
    take(once).nak("busy", delay_seconds=0)
    delivery = take(once)
    assert (delivery.id, delivery.attempt) == (message_id, 2)
    delivery.ack()
    assert assert_books_balance(once, sent=1).done == 1


def test_naks_run_out_of_retries_as_elsewhere(once: Queue) -> None:
    once.send(1)
    for _ in range(4):
        take(once).nak("busy", delay_seconds=0)
    assert once.receive() == []
    [dead] = once.dead_letters()
    assert (dead.outcome, dead.attempts, dead.reason) == (State.FAILED, 4, "busy")


def test_the_message_of_a_vanished_consumer_is_not_handed_out_again(once: Queue, store: Store, clock: Clock) -> None:
    message_id = once.send(1)
    once.register("press 4", heartbeat_seconds=3)
    take(once, consumer="press 4", lease_seconds=1_009)
    clock.advance(seconds=7)
    assert store.sweep().removed_consumers == 1
    assert once.receive() == []
    assert once.dead_letters()[0].outcome is State.LEASE_EXPIRED
    assert_trail_is_legal(once, message_id)
    assert_books_balance(once, sent=1)


def test_the_message_of_a_consumer_that_left_is_not_handed_out_again(once: Queue) -> None:
    once.send(1)
    consumer = once.register("press 4", heartbeat_seconds=3)
    take(once, consumer="press 4", lease_seconds=1_009)
    assert consumer.deregister() == 1
    assert once.receive() == []
    assert once.dead_letters()[0].outcome is State.LEASE_EXPIRED


def test_a_lapsed_lease_cannot_be_settled(once: Queue, clock: Clock) -> None:
    once.send(1)
    delivery = take(once)
    clock.advance(seconds=38)
    with pytest.raises(LeaseLost):
        delivery.nak("too late", delay_seconds=0)
    assert once.receive() == []


def test_only_the_unsettled_part_of_a_receive_expires(once: Queue, store: Store, clock: Clock) -> None:
    once.send_many(list(range(5)))
    deliveries = take_all(once)
    deliveries[0].ack()
    deliveries[3].nak("busy", delay_seconds=1_009)
    clock.advance(seconds=38)
    store.sweep()
    stats = assert_books_balance(once, sent=5)
    assert nonzero(stats.outcomes) == {"succeeded": 1, "lease_expired": 3}
    assert stats.held == 1


def test_a_redrive_is_an_explicit_wish_too(once: Queue, store: Store, clock: Clock) -> None:
    once.send(1)
    take(once)
    clock.advance(seconds=38)
    store.sweep()
    assert once.redrive() == 1
    assert take(once).attempt == 1
