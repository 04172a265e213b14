"""sweep: one pass over all queues, and what it says it did."""

from __future__ import annotations

from penstock import Queue, Store, SweepReport
from tests.conformance.clock import Clock
from tests.conformance.doors import Opener
from tests.conformance.moves import assert_books_balance, take


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
