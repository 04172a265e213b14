"""Previews of a seek or a shorter retention have the numbers of the later change."""

from __future__ import annotations

from datetime import timedelta

import pytest

from penstock import NotFound, Queue, Store
from tests.conformance.assertions import take, take_all
from tests.conformance.clock import Clock


def test_a_seek_to_the_end_passes_by_what_is_unread(queue: Queue) -> None:
    queue.send_many([1, 2, 3, 4, 5])
    take(queue).ack()
    take(queue)
    preview = queue.preview_seek("default", "end")
    assert (preview.passed_by, preview.read_again) == (3, 0)
    assert queue.stats("default").available == 3, "looking moves nothing"
    assert queue.seek("default", "end") == preview.position
    assert queue.stats("default").available == 0


def test_a_seek_to_the_start_reads_again_what_is_not_in_work(queue: Queue) -> None:
    queue.send_many(["acked", "rejected", "leased", "waits", "unread"])
    acked, rejected, _leased, waits = queue.receive(limit=4)
    acked.ack()
    rejected.reject("no")
    waits.nak("busy", delay_seconds=600)
    preview = queue.preview_seek("default", "start")
    assert (preview.passed_by, preview.read_again) == (0, 2)
    queue.seek("default", "start")
    assert queue.stats("default").available == 1 + 2


def test_a_seek_to_a_position_or_a_time_counts_up_to_there(store: Store, queue: Queue, clock: Clock) -> None:
    ids = queue.send_many([1, 2, 3])
    clock.advance(seconds=60)
    queue.send_many([4, 5])
    third = queue.find(ids[2])
    position = third.position
    assert position is not None
    assert queue.preview_seek("default", position).passed_by == 3
    later = queue.preview_seek("default", third.created_at + timedelta(seconds=30))
    assert (later.position, later.passed_by) == (position, 3)
    for delivery in take_all(queue):
        delivery.ack()
    back = queue.preview_seek("default", position)
    assert (back.passed_by, back.read_again) == (0, 2)
    queue.seek("default", position)
    assert len(take_all(queue)) == 2


def test_a_group_that_was_never_there_has_everything_before_it(queue: Queue) -> None:
    queue.send_many([1, 2])
    assert queue.preview_seek("billing", "end").passed_by == 2
    assert "billing" not in queue.groups()


def test_what_expired_unread_is_not_passed_by(store: Store, queue: Queue, clock: Clock) -> None:
    queue.send("short", ttl_seconds=10)
    queue.send("long")
    clock.advance(seconds=11)
    store.sweep()
    assert queue.preview_seek("default", "end").passed_by == 1


def test_dead_letters_that_a_shorter_retention_would_remove(store: Store, queue: Queue, clock: Clock) -> None:
    queue.send_many(range(5))
    for delivery in queue.receive(limit=3):
        delivery.reject("no")
    clock.advance(seconds=100)
    take(queue).reject("no")
    assert queue.preview_retention(dead_letter_seconds=50).dead_letters == 3
    assert queue.preview_retention(dead_letter_seconds=1_000_000_000).dead_letters == 0, "longer keeps more"
    assert queue.preview_retention(lease_seconds=5, max_retries=1) == queue.preview_retention()
    store.queue(queue.name, dead_letter_seconds=50)
    store.sweep()
    assert queue.stats("default").dead == 1


def test_finished_messages_that_a_shorter_history_would_remove(store: Store, queue: Queue, clock: Clock) -> None:
    queue.send_many(["done"] * 4 + ["dead"] + ["waits"] * 2)
    for delivery in queue.receive(limit=4):
        delivery.ack()
    take(queue).reject("no")
    preview = queue.preview_retention(history_seconds=10)
    assert (preview.messages, preview.dead_letters) == (4, 0), "a dead letter keeps its message"
    assert queue.preview_retention(history_seconds=7 * 86_400).messages == 0
    store.queue(queue.name, history_seconds=10)
    store.sweep()
    clock.advance(seconds=11)
    store.sweep()
    assert [archived.message.json() for archived in queue.archive()] == ["dead"]


def test_a_history_is_as_short_as_the_slowest_group_lets_it_be(queue: Queue) -> None:
    queue.send_many(range(5))
    for delivery in queue.receive(limit=4):
        delivery.ack()
    for delivery in queue.receive(limit=2, group="billing"):
        delivery.ack()
    take(queue, group="billing")
    assert queue.preview_retention(history_seconds=10).messages == 2


def test_a_history_of_messages_that_ended_while_they_were_held(queue: Queue) -> None:
    queue.send_many(["done", "waits"])
    take(queue).ack()
    batch = queue.batch("nightly")
    batch.send_many([1, 2])
    batch.cancel()
    assert queue.preview_retention(history_seconds=10).messages == 1, "what was cancelled is kept by dead letters"
    assert queue.purge() == 2
    assert queue.preview_retention(history_seconds=10).messages == 3


def test_without_a_primary_group_a_history_is_that_of_expired_messages(store: Store, clock: Clock) -> None:
    queue = store.queue("groupless", primary_group=None)
    queue.send_many(
        [1, 2, 3],
    )
    queue.send("short", ttl_seconds=10)
    for delivery in queue.receive(limit=4, group="billing"):
        delivery.ack()
    assert queue.preview_retention(history_seconds=10).messages == 0
    clock.advance(seconds=11)
    assert queue.preview_retention(history_seconds=10).messages == 1


def test_an_unknown_queue_has_no_preview(store: Store) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        store.queue("nowhere").preview_seek("default", "end")
    with pytest.raises(NotFound, match="nowhere"):
        store.queue("nowhere").preview_retention(history_seconds=1)
    assert [info.name for info in store.queues() if info.name == "nowhere"] == []
