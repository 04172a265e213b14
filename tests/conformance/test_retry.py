"""Retries: the backoff, the attempts, and the end of both."""

from __future__ import annotations

import pytest

from penstock import Event, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, group_entries, take
from tests.conformance.clock import Chance, Clock
from tests.conformance.conftest import POLICY


def seconds_until_ready(queue: Queue, clock: Clock, expected: float) -> bool:
    """Assert that a message is not ready just before a time, and ready just after it."""
    clock.advance(seconds=expected - 0.001)
    early = queue.peek()
    clock.advance(seconds=0.002)
    return early == [] and len(queue.peek()) == 1


def test_the_backoff_grows_by_its_factor_and_stops_at_its_maximum(store: Store, clock: Clock, chance: Chance) -> None:
    queue = store.queue("retried", **{**POLICY, "max_retries": None})
    chance.value = 0.0
    queue.send(1)
    for expected in (11, 33, 99, 150, 150):
        take(queue).nak("busy")
        assert seconds_until_ready(queue, clock, expected), expected


def test_the_jitter_is_added_to_the_backoff_and_to_its_maximum(store: Store, clock: Clock, chance: Chance) -> None:
    queue = store.queue("retried", **{**POLICY, "max_retries": None})
    queue.send(1)
    for value, expected in ((0.5, 13), (0.75, 36), (0.0, 99), (0.25, 151)):
        chance.value = value
        take(queue).nak("busy")
        assert seconds_until_ready(queue, clock, expected), expected


def test_attempts_have_no_gaps_and_the_last_reason_is_kept(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    for attempt in (1, 2, 3, 4):
        delivery = take(queue)
        assert delivery.attempt == attempt
        delivery.nak(f"reason {attempt}")
        clock.advance(seconds=200)
    assert queue.receive() == []
    [dead] = queue.dead_letters()
    assert (dead.id, dead.outcome, dead.reason, dead.attempts) == (message_id, State.FAILED, "reason 4", 4)
    received = [entry.attempt for entry in group_entries(queue, message_id) if entry.event is Event.RECEIVE]
    assert received == [1, 2, 3, 4]
    assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, sent=1)


def test_without_retries_the_first_nak_is_the_last(store: Store) -> None:
    queue = store.queue("brittle", max_retries=0)
    queue.send(1)
    take(queue).nak("broken", delay_seconds=0)
    assert queue.receive() == []
    [dead] = queue.dead_letters()
    assert (dead.outcome, dead.attempts) == (State.FAILED, 1)


def test_without_a_limit_a_message_is_tried_for_ever(store: Store, clock: Clock) -> None:
    queue = store.queue("stubborn", **{**POLICY, "max_retries": None})
    queue.send(1)
    for attempt in range(1, 101):
        delivery = take(queue)
        assert delivery.attempt == attempt
        delivery.nak("busy")
        clock.advance(seconds=200)
    assert queue.dead_letters() == []


def test_naks_and_lapsed_leases_count_the_same_attempts(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue).nak("busy", delay_seconds=0)
    take(queue)
    clock.advance(seconds=38)
    take(queue).nak("busy", delay_seconds=0)
    assert take(queue).attempt == 4
    clock.advance(seconds=38)
    assert queue.receive() == []
    assert queue.dead_letters()[0].attempts == 4
    assert_trail_is_legal(queue, message_id)


def test_a_changed_number_of_retries_holds_for_messages_already_under_way(queue: Queue, store: Store) -> None:
    queue.send(1)
    take(queue).nak("busy", delay_seconds=0)
    store.queue("orders", max_retries=1)
    take(queue).nak("busy", delay_seconds=0)
    assert queue.receive() == []
    assert queue.dead_letters()[0].attempts == 2


@pytest.mark.parametrize("retries", [0, 1, 2, 5])
def test_a_message_is_delivered_once_more_than_it_has_retries(store: Store, retries: int) -> None:
    queue = store.queue("counted", max_retries=retries)
    queue.send(1)
    deliveries = 0
    while taken := queue.receive():
        deliveries += 1
        taken[0].nak("again", delay_seconds=0)
    assert deliveries == retries + 1
    assert len(queue.dead_letters()) == 1
