"""Counters that never fall: endings and failed attempts, whatever is redriven, read again or flushed."""

from __future__ import annotations

import pytest

from penstock import GroupStats, Queue, Store
from tests.conformance.assertions import assert_books_balance, nonzero, take
from tests.conformance.clock import Clock


def _stats(queue: Queue) -> GroupStats:
    return queue.stats("default")


def test_attempts_that_fail_are_counted_while_retries_are_left(store: Store, queue: Queue, clock: Clock) -> None:
    queue.send_many(["naked", "rejected", "lapsed", "rescheduled", "acked"])
    naked, rejected, _lapsed, rescheduled, acked = queue.receive(limit=5, lease_seconds=30)
    naked.nak("busy", delay_seconds=0)
    rejected.reject("no")
    rescheduled.reschedule(delay_seconds=600)
    acked.ack()
    assert _stats(queue).failed_attempts == 2, "a reschedule and an ack are no failures"
    clock.advance(seconds=31)
    store.sweep()
    stats = _stats(queue)
    assert (stats.failed_attempts, stats.redo, stats.dead) == (3, 2, 1)
    assert nonzero(stats.endings) == {"rejected": 1, "succeeded": 1}


def test_a_retry_that_fails_again_counts_again(store: Store, queue: Queue) -> None:
    store.queue(queue.name, max_retries=2)
    queue.send("poison")
    for attempt in range(1, 4):
        take(queue).nak("still broken", delay_seconds=0)
        assert _stats(queue).failed_attempts == attempt
    assert nonzero(_stats(queue).endings) == {"failed": 1}


def test_a_redrive_takes_nothing_back(store: Store, queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    for delivery in queue.receive(limit=3):
        delivery.reject("no")
    before = _stats(queue)
    assert queue.redrive(limit=2) == 2
    stats = assert_books_balance(queue, sent=3)
    assert nonzero(stats.outcomes) == {"rejected": 1}, "two of them live again"
    assert (stats.endings, stats.failed_attempts) == (before.endings, before.failed_attempts)
    store.sweep()
    for delivery in queue.receive(limit=2):
        delivery.ack()
    assert nonzero(_stats(queue).endings) == {"rejected": 3, "succeeded": 2}


def test_moving_a_group_back_takes_nothing_back(store: Store, queue: Queue) -> None:
    queue.send_many([1, 2])
    for delivery in queue.receive(limit=2):
        delivery.ack()
    queue.seek("default", "start")
    stats = assert_books_balance(queue, sent=2)
    assert (nonzero(stats.outcomes), nonzero(stats.endings)) == ({}, {"succeeded": 2})
    take(queue).ack()
    store.sweep()
    assert nonzero(_stats(queue).endings) == {"succeeded": 3}


@pytest.mark.parametrize("swept", [False, True])
def test_a_flush_takes_nothing_back(store: Store, queue: Queue, swept: bool) -> None:
    queue.send_many([1, 2, 3])
    acked, rejected, naked = queue.receive(limit=3)
    acked.ack()
    rejected.reject("no")
    naked.nak("busy")
    if swept:
        store.sweep()
    queue.flush()
    stats = assert_books_balance(queue, sent=0)
    assert nonzero(stats.outcomes) == {}
    assert (nonzero(stats.endings), stats.failed_attempts) == ({"succeeded": 1, "rejected": 1}, 2)
    queue.send(4)
    take(queue).ack()
    store.sweep()
    assert nonzero(_stats(queue).endings) == {"succeeded": 2, "rejected": 1}


def test_each_group_counts_for_itself(queue: Queue) -> None:
    queue.send(1)
    take(queue, group="billing").nak("busy", delay_seconds=0)
    take(queue).ack()
    assert (queue.stats("billing").failed_attempts, queue.stats("default").failed_attempts) == (1, 0)


def test_the_age_of_a_delayed_message_counts_from_when_it_came_due(store: Store, queue: Queue, clock: Clock) -> None:
    queue.send("later", delay_seconds=600)
    clock.advance(seconds=607)
    store.sweep()
    assert _stats(queue).oldest_age_seconds == pytest.approx(7)


def test_the_age_of_a_retry_counts_from_when_it_came_due(store: Store, queue: Queue, clock: Clock) -> None:
    queue.send("again")
    take(queue).nak("busy", delay_seconds=60)
    clock.advance(seconds=63)
    store.sweep()
    assert _stats(queue).oldest_age_seconds == pytest.approx(3)


def test_the_age_of_a_batch_counts_from_its_start(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    clock.advance(seconds=900)
    batch.start()
    clock.advance(seconds=4)
    assert _stats(queue).oldest_age_seconds == pytest.approx(4)


def test_a_cancelled_batch_says_what_was_cancelled(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2, 3, 4, 5])
    batch.start()
    done, nakked, acked = queue.receive(limit=3)
    done.ack()
    info = batch.cancel()
    assert (info.state, info.total, info.finished, info.cancelled) == ("cancelling", 5, 3, 2)
    nakked.nak("busy", delay_seconds=0)
    acked.ack()
    info = batch.info()
    assert (info.state, info.total, info.finished, info.cancelled) == ("cancelled", 5, 5, 3)
    assert [(one.name, one.cancelled) for one in queue.batches()] == [("nightly", 3)]


def test_a_batch_that_never_started_is_cancelled_whole(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2, 3])
    info = batch.cancel()
    assert (info.state, info.finished, info.cancelled) == ("cancelled", 3, 3)
