"""A lease that ends: leased -> ready, failed or (at_most_once) lease_expired."""

from __future__ import annotations

import pytest

from penstock import Event, LeaseLost, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all, trail
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock


def test_a_lapsed_lease_is_reclaimed_by_the_next_receive_without_a_sweep(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue)
    clock.advance(seconds=36)
    assert queue.receive() == []
    clock.advance(seconds=2)
    delivery = take(queue)
    assert (delivery.id, delivery.attempt) == (message_id, 2)
    assert trail(queue, message_id) == [
        (Event.SEND, State.READY),
        (Event.RECEIVE, State.LEASED),
        (Event.LEASE_END, State.READY),
        (Event.RECEIVE, State.LEASED),
    ]


def test_at_the_very_end_of_a_lease_either_the_holder_or_the_next_has_it(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    holder = take(queue)
    clock.move_to(holder.lease_ends_at)
    successors = queue.receive()
    try:
        holder.ack()
        acked = True
    except LeaseLost:
        acked = False
    assert acked != bool(successors)


def test_a_sweep_reclaims_lapsed_leases_and_counts_them(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many([1, 2, 3])
    take_all(queue)
    assert store.sweep().reclaimed == 0
    clock.advance(seconds=38)
    assert store.sweep().reclaimed == 3
    assert store.sweep().reclaimed == 0
    stats = assert_books_balance(queue, sent=3)
    assert (stats.redo, stats.in_progress, stats.available) == (3, 0, 0)


def test_only_the_unsettled_part_of_a_receive_comes_back(queue: Queue, clock: Clock) -> None:
    queue.send_many(list(range(6)))
    deliveries = take_all(queue)
    deliveries[1].ack()
    deliveries[4].reject("no")
    clock.advance(seconds=38)
    assert payloads(take_all(queue)) == [0, 2, 3, 5]


def test_leases_end_one_by_one_at_their_own_time(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2])
    take(queue, lease_seconds=5)
    take(queue, lease_seconds=11)
    clock.advance(seconds=6)
    assert payloads(take_all(queue)) == [1]
    clock.advance(seconds=6)
    assert payloads(take_all(queue)) == [2]


def test_a_lease_that_ends_without_retries_left_makes_one_dead_letter(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    for attempt in (1, 2, 3, 4):
        assert take(queue).attempt == attempt
        clock.advance(seconds=38)
    assert queue.receive() == []
    store.sweep()
    [dead] = queue.dead_letters()
    assert (dead.id, dead.outcome, dead.attempts) == (message_id, State.FAILED, 4)
    assert dead.reason
    assert trail(queue, message_id)[-1] == (Event.LEASE_END, State.FAILED)
    assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, sent=1)


def test_a_lease_of_one_group_ends_without_touching_another_group(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    take(queue, lease_seconds=5)
    theirs = take(queue, group="billing", lease_seconds=101)
    clock.advance(seconds=6)
    assert take(queue).attempt == 2
    theirs.ack()
    assert queue.stats("billing").done == 1


def test_the_end_of_a_lease_is_audited_in_the_name_of_nobody_but_the_system(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue, consumer="press 4")
    clock.advance(seconds=38)
    take(queue, consumer="press 5")
    entry = queue.audit(message_id)[2]
    assert (entry.event, entry.group, entry.attempt) == (Event.LEASE_END, "default", 1)
    assert entry.by != "press 5"


def test_leases_hold_for_every_opening_of_the_store(queue: Queue, clock: Clock, open_store: Opener) -> None:
    queue.send(1)
    holder = take(queue)
    elsewhere = open_store().queue("orders")
    assert elsewhere.receive() == []
    clock.advance(seconds=38)
    assert take(elsewhere).attempt == 2
    with pytest.raises(LeaseLost):
        holder.ack()


def test_a_clock_that_steps_back_loses_and_doubles_nothing(queue: Queue, store: Store, clock: Clock) -> None:
    sent = [queue.send(1), queue.send(2)]
    holder = take(queue)
    clock.advance(seconds=-3_600)
    sent.append(queue.send(3))
    assert payloads(take_all(queue)) == [2, 3]
    holder.ack()
    store.sweep()
    assert len(set(sent)) == 3
    assert queue.receive() == []
    clock.advance(seconds=3_700)
    assert payloads(take_all(queue)) == [2, 3]
    assert_books_balance(queue, sent=3)
