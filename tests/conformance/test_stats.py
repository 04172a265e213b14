"""stats: every number, and law 7: they add up."""

from __future__ import annotations

import pytest

from penstock import Ack, Delivery, LeaseLost, Nak, NotFound, Outgoing, Queue, Reject, Store
from tests.conformance.assertions import assert_books_balance, nonzero, take
from tests.conformance.clock import Clock


def test_every_place_a_message_can_be_in_is_counted_once(queue: Queue, clock: Clock) -> None:
    queue.send_many(["succeeded"] * 2 + ["rejected"] + ["backoff"] * 3 + ["redo"] * 4 + ["in progress"] * 5)
    deliveries: dict[str, list[Delivery]] = {}
    for delivery in queue.receive(limit=15):
        deliveries.setdefault(delivery.json(), []).append(delivery)
    queue.settle([Ack(delivery) for delivery in deliveries["succeeded"]])
    queue.settle([Reject(delivery, "no") for delivery in deliveries["rejected"]])
    queue.settle([Nak(delivery, "busy", 60) for delivery in deliveries["backoff"]])
    queue.settle([Nak(delivery, "busy", 0) for delivery in deliveries["redo"]])
    queue.send_many([Outgoing(payload="delayed", delay_seconds=13)] * 6)
    queue.send_many(["available"] * 7)
    stats = assert_books_balance(queue, sent=28)
    assert (stats.done, stats.dead, stats.redo, stats.in_progress) == (2, 1, 4, 5)
    assert (stats.held, stats.available, stats.total, stats.lag) == (3 + 6, 7, 28, 7)
    assert nonzero(stats.outcomes) == {"succeeded": 2, "rejected": 1}


def test_an_unknown_group_is_not_found_and_the_nearest_is_suggested(queue: Queue) -> None:
    queue.send(1)
    take(queue, group="billing")
    with pytest.raises(NotFound, match="billing"):
        queue.stats("biling")


def test_the_age_is_that_of_the_oldest_message_still_to_be_done(queue: Queue, clock: Clock) -> None:
    assert queue.stats() == {} or queue.stats("default").oldest_age_seconds is None
    queue.send(1)
    clock.advance(seconds=17)
    queue.send(2)
    clock.advance(seconds=5)
    assert queue.stats("default").oldest_age_seconds == pytest.approx(22)
    take(queue).ack()
    assert queue.stats("default").oldest_age_seconds == pytest.approx(5)
    take(queue).ack()
    assert queue.stats("default").oldest_age_seconds is None


def test_stats_of_all_groups_and_of_one_are_the_same_numbers(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    take(queue)
    take(queue, group="billing").ack()
    assert queue.stats() == {"default": queue.stats("default"), "billing": queue.stats("billing")}


def test_looking_at_stats_changes_nothing(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue)
    clock.advance(seconds=38)
    for _ in range(3):
        queue.stats()
    assert len(queue.audit(message_id)) == 2


def test_the_books_balance_when_leases_were_lost(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many(list(range(10)))
    deliveries = queue.receive(limit=10)
    clock.advance(seconds=38)
    again = queue.receive(limit=4)
    for delivery in deliveries:
        with pytest.raises(LeaseLost):
            delivery.ack()
    queue.ack_many(again)
    store.sweep()
    stats = assert_books_balance(queue, sent=10)
    assert (stats.done, stats.redo) == (4, 6)
