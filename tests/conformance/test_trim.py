"""Retention: what the sweep removes and keeps."""

from __future__ import annotations

import pytest

from penstock import LeaseLost, NotFound, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, nonzero, payloads, take, take_all
from tests.conformance.clock import Clock

HISTORY = 7_001
DEAD_LETTER = 90_007
GROUP_IDLE = 50_021


def age(store: Store, clock: Clock, seconds: float) -> int:
    """Advance the clock and sweep; returns the number of trimmed messages."""
    store.sweep()
    clock.advance(seconds=seconds)
    return store.sweep().trimmed


def test_a_finished_message_is_readable_until_its_history_ends(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue).ack()
    assert age(store, clock, HISTORY - 1) == 0
    assert queue.find(message_id).json() == 1
    assert len(queue.archive()) == 1
    assert age(store, clock, 2) == 1
    with pytest.raises(NotFound, match=message_id):
        queue.find(message_id)
    assert queue.archive() == []


def test_the_trail_of_a_trimmed_message_goes_with_it(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue).ack()
    age(store, clock, HISTORY + 1)
    with pytest.raises(NotFound):
        queue.audit(message_id)


def test_counts_are_kept_when_messages_are_trimmed(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many([1, 2, 3])
    queue.ack_many(take_all(queue))
    assert age(store, clock, HISTORY + 1) == 3
    assert assert_books_balance(queue, sent=3).done == 3


@pytest.mark.parametrize("place", ["ready", "leased", "waiting for a retry"])
def test_a_live_message_is_never_trimmed(queue: Queue, store: Store, clock: Clock, place: str) -> None:
    message_id = queue.send(1)
    if place == "leased":
        take(queue, lease_seconds=10 * HISTORY)
    elif place == "waiting for a retry":
        take(queue).nak("busy", delay_seconds=10 * HISTORY)
    for _ in range(3):
        age(store, clock, HISTORY + 1)
    assert queue.find(message_id).json() == 1
    clock.advance(seconds=10 * HISTORY)
    assert take(queue).id == message_id


def test_a_held_message_is_never_trimmed(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1, delay_seconds=5 * HISTORY)
    for _ in range(3):
        age(store, clock, HISTORY + 1)
    assert queue.find(message_id).json() == 1


def test_a_message_that_a_group_has_not_finished_is_not_trimmed(queue: Queue, store: Store, clock: Clock) -> None:
    queue.receive(group="billing")
    message_id = queue.send(1)
    take(queue).ack()
    assert age(store, clock, HISTORY + 1) == 0
    assert take(queue, group="billing").id == message_id


def test_a_group_that_finished_later_starts_the_history_later(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    queue.receive(group="billing")[0].nak("busy", delay_seconds=0)
    take(queue).ack()
    age(store, clock, HISTORY - 10)
    take(queue, group="billing").ack()
    assert age(store, clock, 20) == 0
    assert queue.find(message_id).json() == 1
    assert age(store, clock, HISTORY) == 1


def test_an_idle_group_no_longer_holds_back_trimming(queue: Queue, store: Store, clock: Clock) -> None:
    queue.receive(group="forgotten")
    message_id = queue.send(1)
    take(queue).ack()
    clock.advance(seconds=GROUP_IDLE + 1)
    age(store, clock, HISTORY + 1)
    store.sweep()
    with pytest.raises(NotFound):
        queue.find(message_id)


def test_an_idle_group_that_comes_back_goes_on_with_what_is_left(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many(["leased", "retried", "unread"])
    leased, retried = queue.receive(limit=2, group="forgotten")
    retried.nak("busy", delay_seconds=19)
    queue.ack_many(take_all(queue))
    clock.advance(seconds=GROUP_IDLE + 1)
    age(store, clock, HISTORY + 1)
    store.sweep()
    queue.send("fresh")
    with pytest.raises(LeaseLost):
        leased.ack()
    came_back = take_all(queue, group="forgotten")
    assert came_back[-1].json() == "fresh"
    queue.ack_many(came_back)
    assert queue.receive(group="forgotten") == []
    stats = queue.stats("forgotten")
    assert (stats.available, stats.redo, stats.in_progress, stats.lag) == (0, 0, 0, 0)


def test_an_address_that_is_still_waited_for_is_not_trimmed(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, address="desk")
    take(queue).ack()
    age(store, clock, HISTORY - 5)
    assert queue.wait("desk", timeout_seconds=0) is State.SUCCEEDED


def test_an_idle_primary_group_does_not_lose_what_it_has_not_read(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    for _ in range(3):
        age(store, clock, GROUP_IDLE + HISTORY)
    assert take(queue).id == message_id, "law 1: a send that returned is never lost"


def test_a_dead_letter_outlives_the_history_of_its_message(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send({"order": 1})
    take(queue).reject("no")
    age(store, clock, HISTORY + 1)
    [dead] = queue.dead_letters()
    assert (dead.id, dead.json(), dead.reason) == (message_id, {"order": 1}, "no")


def test_a_dead_letter_is_purged_when_its_own_retention_ends(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue).reject("no")
    clock.advance(seconds=DEAD_LETTER - 1)
    assert store.sweep().purged == 0
    assert len(queue.dead_letters()) == 1
    clock.advance(seconds=2)
    assert store.sweep().purged == 1
    assert queue.dead_letters() == []
    store.sweep()
    age(store, clock, HISTORY + 1)
    with pytest.raises(NotFound):
        queue.find(message_id)
    assert nonzero(assert_books_balance(queue, sent=1).outcomes) == {"rejected": 1}


def test_messages_around_a_dead_letter_are_trimmed(queue: Queue, store: Store, clock: Clock) -> None:
    sent = queue.send_many([1, 2, 3])
    first, second, third = take_all(queue)
    second.reject("no")
    first.ack()
    third.ack()
    age(store, clock, HISTORY + 1)
    for gone in (sent[0], sent[2]):
        with pytest.raises(NotFound):
            queue.find(gone)
    assert queue.redrive(sent[1]) == 1
    assert take(queue).json() == 2


def test_a_history_of_nothing_trims_at_the_next_sweeps(store: Store, clock: Clock) -> None:
    queue = store.queue("brief", history_seconds=0)
    queue.send(1)
    take(queue).ack()
    store.sweep()
    clock.advance(seconds=1)
    store.sweep()
    assert queue.archive() == []


def test_a_new_group_starts_at_what_is_left(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1)
    take(queue).ack()
    age(store, clock, HISTORY + 1)
    queue.send(2)
    assert payloads(take_all(queue, group="late")) == [2]


def test_sending_and_receiving_go_on_after_everything_was_trimmed(queue: Queue, store: Store, clock: Clock) -> None:
    first = queue.send(1)
    take(queue).ack()
    age(store, clock, HISTORY + 1)
    second = queue.send(2)
    assert second != first
    delivery = take(queue)
    assert (delivery.id, delivery.attempt) == (second, 1)
    delivery.ack()
    assert nonzero(assert_books_balance(queue, sent=2).outcomes) == {State.SUCCEEDED: 2}


def test_trimming_one_queue_leaves_another_alone(queue: Queue, store: Store, clock: Clock) -> None:
    other = store.queue("other", history_seconds=70_001)
    kept = other.send(1)
    take(other).ack()
    queue.send(2)
    take(queue).ack()
    assert age(store, clock, HISTORY + 1) == 1
    assert other.find(kept).json() == 1
