"""sweep: one pass over all queues, and its report."""

from __future__ import annotations

from penstock import Queue, Store, SweepReport
from tests.conformance.assertions import assert_books_balance, take
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock


def test_a_sweep_with_nothing_to_do_does_nothing(queue: Queue, store: Store) -> None:
    assert store.sweep() == SweepReport()
    message_id = queue.send(1)
    take(queue)
    assert store.sweep() == SweepReport()
    assert len(queue.audit(message_id)) == 2


def test_a_sweep_covers_all_queues_and_groups(store: Store, clock: Clock) -> None:
    for name in ("first", "second", "third"):
        queue = store.queue(name, lease_seconds=37)
        queue.send_many([1, 2])
        queue.receive(limit=2)
        queue.receive(limit=1, group="billing")
        queue.send("held", delay_seconds=13)
    clock.advance(seconds=38)
    report = store.sweep()
    assert (report.reclaimed, report.promoted) == (9, 3)


def test_sweeping_again_and_again_leaves_the_books_in_balance(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many(list(range(5)))
    for _ in range(6):
        queue.receive(limit=2)
        clock.advance(seconds=38)
        store.sweep()
        store.sweep()
        assert_books_balance(queue, sent=5)


def test_two_openings_sweep_side_by_side_and_each_thing_is_done_once(
    queue: Queue, store: Store, clock: Clock, open_store: Opener
) -> None:
    queue.send_many([1, 2])
    queue.receive(limit=2)
    clock.advance(seconds=38)
    assert store.sweep().reclaimed + open_store().sweep().reclaimed == 2


def test_a_sweep_of_a_quiet_store_commits_nothing(store: Store, clock: Clock) -> None:
    """A commit wakes all waiters."""
    for number in range(60):
        queue = store.queue(f"queue {number}")
        queue.send(1)
        take(queue).ack()
    for _ in range(3):
        store.sweep()
    seen = store.engine.seen()
    clock.advance(seconds=5)
    store.sweep()
    assert store.engine.seen() == seen


def test_claiming_a_sweep_wakes_nobody(store: Store, queue: Queue) -> None:
    """A late notification of the send may wake one of the waits; a claim that wakes would wake all of them."""
    engine = store.engine
    queue.send(1)
    for _ in range(60):
        seen = engine.seen()
        assert engine.claim_sweep(0)
        if engine.wait(seen, 0.2) == seen:
            return
    raise AssertionError("each of 60 claims woke a waiting call")


def test_a_queue_that_was_quiet_is_swept_when_something_is_due(store: Store, clock: Clock) -> None:
    queues = [store.queue(f"queue {number}", lease_seconds=37, history_seconds=100) for number in range(60)]
    for queue in queues:
        queue.send_many([1, 2])
        take(queue).ack()
        take(queue)
    for _ in range(3):
        store.sweep()
    clock.advance(seconds=38)
    assert store.sweep().reclaimed == 60
    for queue in queues:
        take(queue).ack()
    assert sum(store.sweep().trimmed for _ in range(3)) == 0
    clock.advance(seconds=101)
    assert sum(store.sweep().trimmed for _ in range(3)) == 120
