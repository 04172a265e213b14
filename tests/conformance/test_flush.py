"""flush: the queue is empty as after its creation."""

from __future__ import annotations

import pytest

from penstock import LeaseLost, NotFound, Queue, Store
from penstock.domain.message import PLAIN
from tests.conformance.assertions import assert_books_balance, nonzero, payloads, take, take_all
from tests.conformance.clock import Clock


def test_everything_is_removed_and_counted(queue: Queue, clock: Clock) -> None:
    queue.send_many(["acked", "rejected", "leased", "retried", "ready"])
    acked, rejected, _leased, retried = queue.receive(limit=4)
    acked.ack()
    rejected.reject("no")
    retried.nak("busy", delay_seconds=0)
    queue.send("held", delay_seconds=13)
    queue.batch("nightly").send("in a batch")
    assert queue.flush() == 7
    clock.advance(seconds=1_009)
    assert queue.receive() == []
    assert queue.dead_letters() == []
    assert queue.archive() == []
    assert queue.batches() == []
    assert queue.peek() == []


def test_the_books_start_again_at_nothing(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    take(queue).ack()
    queue.flush()
    queue.send(4)
    stats = assert_books_balance(queue, sent=1)
    assert (stats.available, stats.lag, nonzero(stats.outcomes)) == (1, 1, {})


def test_messages_and_their_trails_are_not_found_any_more(queue: Queue) -> None:
    message_id = queue.send(1)
    held = queue.send(2, delay_seconds=13)
    queue.flush()
    for gone in (message_id, held):
        with pytest.raises(NotFound, match=gone):
            queue.find(gone)
        with pytest.raises(NotFound, match=gone):
            queue.audit(gone)


def test_leases_end_and_nothing_comes_back(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    queue.flush()
    with pytest.raises(LeaseLost):
        delivery.ack()
    with pytest.raises(LeaseLost):
        delivery.extend(53)
    clock.advance(seconds=38)
    store.sweep()
    assert queue.receive() == []


def test_a_stale_delivery_does_not_settle_what_was_sent_after_the_flush(queue: Queue) -> None:
    queue.send(1)
    stale = take(queue)
    queue.flush()
    queue.send(2)
    fresh = take(queue)
    with pytest.raises(LeaseLost):
        stale.ack()
    assert queue.stats("default").in_progress == 1
    fresh.ack()


def test_the_policy_is_kept(queue: Queue) -> None:
    before = queue.policy()
    queue.send(1)
    queue.flush()
    assert queue.policy() == before


def test_addresses_and_ids_are_free_again(queue: Queue) -> None:
    chosen = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    queue.send("before", address="desk", id=chosen)
    queue.flush()
    assert queue.send("after", address="desk", id=chosen) == chosen
    assert payloads(take_all(queue)) == ["after"]


def test_an_id_that_penstock_made_before_the_flush_is_never_made_again(queue: Queue) -> None:
    before = set(queue.send_many([1, 2, 3]))
    queue.flush()
    assert before.isdisjoint(queue.send_many([4, 5, 6]))


def test_other_queues_are_not_touched(queue: Queue, store: Store) -> None:
    other = store.queue("other")
    other.send(1)
    other_lease = take(other)
    queue.send(2)
    assert queue.flush() == 1
    other_lease.ack()


def test_flushing_an_empty_or_unknown_queue_removes_nothing(queue: Queue, store: Store) -> None:
    assert queue.flush() == 0
    assert store.queue("unknown").flush() == 0


def test_every_group_starts_again(queue: Queue) -> None:
    queue.send(1)
    take(queue, group="billing").ack()
    queue.flush()
    queue.send(2)
    assert payloads(take_all(queue, group="billing")) == [2]
    assert payloads(take_all(queue)) == [2]


def test_what_the_same_transaction_has_sent_is_removed_too(queue: Queue) -> None:
    queue.send("before")
    draft = (b"same", None, PLAIN)
    engine = queue.engine
    sent, count, _ = engine.together(
        [
            lambda: engine.send(queue.name, [draft]),
            lambda: engine.flush(queue.name),
            lambda: engine.send(queue.name, [(b"after", None, PLAIN)]),
        ]
    )
    assert (len(sent), count) == (1, 2)
    assert engine.unread(queue.name) == 1
    assert [delivery.payload for delivery in take_all(queue)] == [b"after"]
    assert [delivery.payload for delivery in take_all(queue, group="new")] == [b"after"]
    assert_books_balance(queue, sent=1)
