"""Batches: held until started, one end message when all members are finished."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Ack, BatchInfo, Event, InvalidInput, NotFound, Outgoing, Queue, State, Store
from tests.conformance.assertions import (
    assert_books_balance,
    assert_trail_is_legal,
    ids,
    payloads,
    take,
    take_all,
    trail,
)
from tests.conformance.clock import Clock


def test_members_are_invisible_until_the_batch_starts(queue: Queue) -> None:
    batch = queue.batch("nightly")
    first, second = batch.send(1), batch.send(2)
    assert queue.receive() == []
    assert queue.peek() == []
    assert queue.find(first).position is None
    assert batch.start() == BatchInfo("nightly", "orders", "running", total=2, remaining=2, finished=0)
    assert ids(take_all(queue)) == [first, second]


def test_the_audit_shows_the_start(queue: Queue) -> None:
    batch = queue.batch("nightly")
    member = batch.send(1)
    batch.start()
    assert trail(queue, member) == [(Event.SEND, State.HELD), (Event.BATCH_START, State.READY)]


def test_members_and_the_end_message_know_their_batch(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1, priority=3, headers={"a": "b"})
    batch.set_end("end")
    batch.start()
    member = take(queue)
    assert (member.batch, member.priority, member.headers) == ("nightly", 3, {"a": "b"})
    member.ack()
    [waiting] = queue.peek()
    end = take(queue)
    assert waiting.batch == end.batch == end.headers["penstock-batch"] == "nightly"
    end.ack()
    assert (batch.info().total, batch.info().finished) == (1, 1), "the end message is no member"


def test_the_end_message_is_sent_when_the_last_member_is_finished(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2, 3])
    batch.set_end({"all": "done"}, priority=2, headers={"kind": "end"})
    batch.start()
    first, second, third = take_all(queue)
    third.ack()
    first.ack()
    assert queue.receive() == []
    assert (batch.state, batch.remaining, batch.finished) == ("running", 1, 2)
    second.ack()
    assert (batch.state, batch.remaining, batch.finished) == ("finished", 0, 3)
    end = take(queue)
    assert (end.json(), end.priority) == ({"all": "done"}, 2)
    assert end.headers == {"kind": "end", "penstock-batch": "nightly"}
    assert_books_balance(queue, sent=4)


def test_the_end_message_is_sent_once_however_often_the_last_ack_is_repeated(queue: Queue, store: Store) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_end("end")
    batch.start()
    last = take(queue)
    for _ in range(3):
        last.ack()
        store.sweep()
        batch.start()
    assert payloads(take_all(queue)) == ["end"]


def test_whole_receives_that_finish_a_batch_send_its_end_message(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many(list(range(20)))
    batch.set_end("end")
    batch.start()
    queue.ack_many(queue.receive(limit=13))
    assert batch.remaining == 7
    queue.ack_many(take_all(queue))
    assert batch.state == "finished"
    assert payloads(take_all(queue)) == ["end"]


def test_one_settle_of_all_members_sends_one_end_message(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2, 3])
    batch.set_end("end")
    batch.start()
    queue.settle([Ack(delivery) for delivery in take_all(queue)])
    assert payloads(take_all(queue)) == ["end"]


def test_members_that_die_are_finished_too(store: Store, clock: Clock) -> None:
    queue = store.queue("brittle", max_retries=0, lease_seconds=37)
    batch = queue.batch("nightly")
    batch.send_many(["rejected", "failed", "lapsed", Outgoing(payload="expired", ttl_seconds=613)])
    batch.set_end("end")
    batch.start()
    rejected, failed, _lapsed = queue.receive(limit=3)
    rejected.reject("no")
    failed.nak("broken")
    clock.advance(seconds=38)
    store.sweep()
    assert batch.remaining == 1
    clock.advance(seconds=613)
    store.sweep()
    assert batch.state == "finished"
    assert payloads(take_all(queue)) == ["end"]
    assert_books_balance(queue, sent=5)


def test_a_retry_keeps_a_batch_running(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_end("end")
    batch.start()
    take(queue).nak("busy", delay_seconds=19)
    assert (batch.state, batch.remaining) == ("running", 1)
    clock.advance(seconds=20)
    take(queue).ack()
    assert payloads(take_all(queue)) == ["end"]


def test_a_rescheduled_member_keeps_a_batch_running(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.start()
    take(queue).reschedule(71)
    assert batch.state == "running"
    clock.advance(seconds=72)
    take(queue).ack()
    assert batch.state == "finished"


def test_an_empty_batch_ends_when_it_starts(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.set_end("end")
    info = batch.start()
    assert (info.state, info.total, info.remaining, info.finished) == ("finished", 0, 0, 0)
    assert payloads(take_all(queue)) == ["end"]


def test_a_batch_without_an_end_message_just_ends(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.start()
    take(queue).ack()
    assert batch.state == "finished"
    assert queue.receive() == []


def test_members_may_be_added_while_a_batch_runs(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_end("end")
    batch.start()
    first = take(queue)
    added = batch.send(2)
    assert trail(queue, added) == [(Event.SEND, State.READY)]
    first.ack()
    assert (batch.state, batch.remaining, batch.finished) == ("running", 1, 1)
    take(queue).ack()
    assert payloads(take_all(queue)) == ["end"]


def test_the_end_message_may_be_set_while_a_batch_runs_and_the_last_one_counts(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_end("first thought")
    batch.start()
    batch.set_end("second thought")
    take(queue).ack()
    assert payloads(take_all(queue)) == ["second thought"]


def test_a_delayed_member_waits_for_its_time_after_the_start(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    member = batch.send("late", delay_seconds=13)
    batch.set_end("end")
    batch.start()
    assert queue.receive() == []
    assert (batch.state, batch.remaining) == ("running", 1)
    clock.advance(seconds=14)
    take(queue).ack()
    assert trail(queue, member)[:2] == [(Event.SEND, State.HELD), (Event.DUE, State.READY)]
    assert payloads(take_all(queue)) == ["end"]


def test_a_delayed_member_waits_for_the_start_after_its_time(queue: Queue, store: Store, clock: Clock) -> None:
    batch = queue.batch("nightly")
    member = batch.send("late", delay_seconds=13)
    clock.advance(seconds=14)
    store.sweep()
    assert queue.receive() == []
    batch.start()
    assert take(queue).id == member
    assert trail(queue, member)[:2] == [(Event.SEND, State.HELD), (Event.BATCH_START, State.READY)]


def test_a_delayed_member_added_while_running_is_waited_for(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_end("end")
    batch.start()
    batch.send(2, delay_seconds=13)
    take(queue).ack()
    assert (batch.state, batch.remaining) == ("running", 1)
    clock.advance(seconds=14)
    take(queue).ack()
    assert payloads(take_all(queue)) == ["end"]


def test_a_member_that_expires_before_the_start_is_finished(queue: Queue, store: Store, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.send(1, ttl_seconds=613)
    batch.set_end("end")
    clock.advance(seconds=614)
    store.sweep()
    assert batch.state == "open"
    batch.start()
    assert batch.state == "finished"
    assert payloads(take_all(queue)) == ["end"]
    assert_books_balance(queue, sent=2)


def test_a_member_that_expired_unnoticed_before_the_start_is_finished_by_the_next_sweep(
    queue: Queue, store: Store, clock: Clock
) -> None:
    batch = queue.batch("nightly")
    batch.send(1, ttl_seconds=613)
    batch.set_end("end")
    clock.advance(seconds=614)
    batch.start()
    assert payloads(take_all(queue)) in ([], ["end"])
    store.sweep()
    assert batch.state == "finished"
    assert_books_balance(queue, sent=2)


def test_a_delayed_end_message_is_held(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.set_end("end", delay_seconds=13)
    batch.start()
    assert queue.receive() == []
    clock.advance(seconds=14)
    assert payloads(take_all(queue)) == ["end"]


def test_starting_again_changes_nothing(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2])
    batch.start()
    take(queue).ack()
    assert batch.start() == BatchInfo("nightly", "orders", "running", total=2, remaining=1, finished=1)
    assert payloads(take_all(queue)) == [2]


def test_a_name_can_be_used_again_when_its_batch_has_ended(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send("monday")
    batch.set_end("end of monday")
    batch.start()
    take(queue).ack()
    take(queue).ack()
    assert batch.start().state == "finished"
    again = queue.batch("nightly")
    again.send("tuesday")
    assert (again.state, again.remaining, again.finished) == ("open", 1, 0)
    assert (batch.state, batch.remaining, batch.finished) == ("finished", 0, 1)
    assert queue.receive() == []
    again.start()
    take(queue).ack()
    assert again.state == "finished"
    assert queue.receive() == [], "the end message of monday belongs to monday"


def test_batches_of_different_names_do_not_mix(queue: Queue) -> None:
    first, second = queue.batch("first"), queue.batch("second")
    first.send(1)
    second.send(2)
    first.start()
    assert payloads(take_all(queue)) == [1]
    assert second.state == "open"


def test_batches_of_one_name_on_two_queues_are_two_batches(store: Store) -> None:
    first, second = store.queue("first"), store.queue("second")
    first.batch("nightly").send(1)
    second.batch("nightly").send(2)
    first.batch("nightly").start()
    assert payloads(take_all(first)) == [1]
    assert take_all(second) == []


def test_the_batches_of_a_queue_are_listed_newest_first(queue: Queue) -> None:
    for name in ("a", "c", "b"):
        queue.batch(name).send(1)
    queue.batch("c").start()
    assert [(info.name, info.state) for info in queue.batches()] == [("b", "open"), ("c", "running"), ("a", "open")]


def test_an_unknown_batch_is_not_found(queue: Queue) -> None:
    with pytest.raises(NotFound, match="nightly"):
        queue.batch("nightly").info()


def test_the_same_id_again_is_one_member(queue: Queue) -> None:
    batch = queue.batch("nightly")
    chosen = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    batch.send(1, id=chosen)
    batch.send(1, id=chosen)
    assert batch.info().total == 1


def test_another_group_neither_ends_nor_sees_less_of_a_batch(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2])
    batch.set_end("end")
    batch.start()
    queue.ack_many(take_all(queue, group="billing"))
    assert (batch.state, batch.remaining) == ("running", 2)
    queue.ack_many(take_all(queue))
    assert payloads(take_all(queue, group="billing")) == ["end"]


def test_a_member_that_is_redriven_after_the_end_does_not_end_it_again(queue: Queue) -> None:
    batch = queue.batch("nightly")
    member = batch.send(1)
    batch.set_end("end")
    batch.start()
    take(queue).reject("no")
    take(queue).ack()
    assert queue.redrive(member) == 1
    take(queue).ack()
    assert queue.receive() == []
    assert batch.state == "finished"
    assert_trail_is_legal(queue, member)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, 7])
def test_a_bad_name_is_refused(queue: Queue, name: Any) -> None:
    with pytest.raises(InvalidInput, match="batch"):
        queue.batch(name)


def test_a_bad_end_message_is_refused_and_nothing_is_opened(queue: Queue) -> None:
    with pytest.raises(InvalidInput, match="priority"):
        queue.batch("nightly").set_end("end", priority=-1)
    assert queue.batches() == []
