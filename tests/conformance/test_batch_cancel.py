"""Cancelling a batch: members that are not in flight end at once; one abort message when the others have ended."""

from __future__ import annotations

import pytest

from penstock import BatchClosed, Event, LeaseLost, Outgoing, Queue, State, Store
from tests.conformance.assertions import (
    assert_books_balance,
    assert_trail_is_legal,
    nonzero,
    payloads,
    take,
    take_all,
    trail,
)
from tests.conformance.clock import Clock


def test_members_of_a_batch_that_never_started_are_cancelled_at_once(queue: Queue) -> None:
    batch = queue.batch("nightly")
    member = batch.send(1)
    batch.set_end("end")
    batch.set_abort("aborted")
    assert batch.cancel().state == "cancelled"
    assert payloads(take_all(queue)) == ["aborted"]
    [dead] = queue.dead_letters()
    assert (dead.id, dead.outcome, dead.group, dead.attempts) == (member, State.CANCELLED, "default", 0)
    assert trail(queue, member) == [(Event.SEND, State.HELD), (Event.BATCH_CANCEL, State.CANCELLED)]
    assert_books_balance(queue, sent=2)


def test_ready_members_are_cancelled_at_once_and_others_are_not(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2])
    queue.send("bystander")
    batch.start()
    batch.cancel()
    assert payloads(take_all(queue)) == ["bystander"]
    assert nonzero(assert_books_balance(queue, sent=3).outcomes) == {"cancelled": 2}


def test_members_in_all_priorities_are_cancelled(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([Outgoing(payload=n, priority=n) for n in range(4)])
    batch.start()
    batch.cancel()
    assert queue.receive() == []
    assert nonzero(assert_books_balance(queue, sent=4).outcomes) == {"cancelled": 4}


def test_delayed_members_and_those_waiting_for_a_retry_are_cancelled_at_once(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    retried, _due_retry, delayed = batch.send_many([1, 2, Outgoing(payload=3, delay_seconds=60)])
    batch.set_abort("aborted")
    batch.start()
    first, second = take_all(queue)
    first.nak("busy", delay_seconds=60)
    second.nak("busy", delay_seconds=0)
    assert batch.cancel().state == "cancelled"
    clock.advance(seconds=61)
    assert payloads(take_all(queue)) == ["aborted"]
    assert trail(queue, retried)[-1] == (Event.BATCH_CANCEL, State.CANCELLED)
    assert trail(queue, delayed)[-1] == (Event.BATCH_CANCEL, State.CANCELLED)
    assert_books_balance(queue, sent=4)


def test_the_abort_message_waits_for_what_is_in_flight(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2, 3])
    batch.set_end("end")
    batch.set_abort("aborted", priority=2)
    batch.start()
    first, second = queue.receive(limit=2)
    info = batch.cancel()
    assert (info.state, info.remaining, info.finished) == ("cancelling", 2, 1)
    assert queue.receive() == []
    first.ack()
    assert queue.receive() == []
    second.ack()
    assert batch.state == "cancelled"
    [abort] = take_all(queue)
    assert (abort.json(), abort.priority) == ("aborted", 2)
    assert nonzero(assert_books_balance(queue, sent=4).outcomes) == {"succeeded": 2, "cancelled": 1}


@pytest.mark.parametrize(
    ("verb", "event", "state"),
    [
        ("nak", Event.NAK, State.CANCELLED),
        ("reschedule", Event.RESCHEDULE, State.CANCELLED),
        ("reject", Event.REJECT, State.REJECTED),
        ("ack", Event.ACK, State.SUCCEEDED),
    ],
)
def test_a_member_in_flight_ends_by_whatever_its_holder_says(
    queue: Queue, verb: str, event: Event, state: State
) -> None:
    batch = queue.batch("nightly")
    member = batch.send(1)
    batch.set_abort("aborted")
    batch.start()
    holder = take(queue)
    batch.cancel()
    getattr(holder, verb)(reason="because")
    assert trail(queue, member)[-1] == (event, state)
    assert batch.state == "cancelled"
    assert payloads(take_all(queue)) == ["aborted"]
    assert_books_balance(queue, sent=2)


def test_a_member_whose_lease_ends_after_the_cancellation_is_cancelled(
    queue: Queue, store: Store, clock: Clock
) -> None:
    batch = queue.batch("nightly")
    member = batch.send(1)
    batch.set_abort("aborted")
    batch.start()
    holder = take(queue)
    batch.cancel()
    clock.advance(seconds=38)
    store.sweep()
    with pytest.raises(LeaseLost):
        holder.ack()
    assert trail(queue, member)[-1] == (Event.LEASE_END, State.CANCELLED)
    assert payloads(take_all(queue)) == ["aborted"]
    assert_books_balance(queue, sent=2)


def test_whole_receives_acked_after_the_cancellation_bring_the_abort_message(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2, 3])
    batch.set_abort("aborted")
    batch.start()
    deliveries = take_all(queue)
    batch.cancel()
    assert queue.ack_many(deliveries) == 3
    assert batch.state == "cancelled"
    assert payloads(take_all(queue)) == ["aborted"]


def test_the_abort_message_is_sent_once_however_often_it_is_cancelled(queue: Queue, store: Store) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_abort("aborted")
    for _ in range(3):
        assert batch.cancel().state == "cancelled"
        store.sweep()
    assert payloads(take_all(queue)) == ["aborted"]


def test_the_abort_message_knows_its_batch_and_is_not_cancelled_with_it(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_abort("abort")
    batch.cancel()
    abort = take(queue)
    assert (abort.json(), abort.batch) == ("abort", "nightly")
    abort.nak("again", delay_seconds=0)
    again = take(queue)
    assert (again.attempt, again.batch) == (2, "nightly")
    again.ack()
    assert batch.state == "cancelled"


def test_a_cancelled_batch_sends_no_end_message(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_end("end")
    batch.start()
    holder = take(queue)
    batch.cancel()
    holder.ack()
    assert queue.receive() == []
    assert batch.start().state == "cancelled"


def test_an_empty_batch_can_be_cancelled(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.set_abort("aborted")
    assert batch.cancel().state == "cancelled"
    assert payloads(take_all(queue)) == ["aborted"]


def test_a_batch_that_is_being_cancelled_takes_no_more_messages(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.start()
    take(queue)
    batch.cancel()
    with pytest.raises(BatchClosed, match="nightly"):
        batch.send(2)
    assert_books_balance(queue, sent=1)


def test_a_name_can_be_used_again_when_its_batch_was_cancelled(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.cancel()
    again = queue.batch("nightly")
    again.send(2)
    assert (again.state, batch.state) == ("open", "cancelled")
    again.start()
    assert payloads(take_all(queue)) == [2]


def test_cancelling_a_batch_that_has_ended_changes_nothing(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.set_abort("aborted")
    batch.start()
    take(queue).ack()
    assert batch.cancel().state == "finished"
    assert queue.receive() == []


def test_other_groups_do_not_get_cancelled_members(queue: Queue) -> None:
    queue.receive(group="billing")
    batch = queue.batch("nightly")
    member = batch.send(1)
    batch.start()
    batch.cancel()
    assert queue.receive(group="billing") == []
    assert queue.dead_letters(group="billing") == []
    assert_trail_is_legal(queue, member, "billing")
    assert nonzero(assert_books_balance(queue, sent=1, group="billing").outcomes) == {"cancelled": 1}


def test_the_address_of_a_cancelled_member_is_free(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1, address="desk")
    batch.cancel()
    queue.send(2, address="desk")


def test_a_cancelled_member_can_be_redriven(queue: Queue) -> None:
    batch = queue.batch("nightly")
    member = batch.send(1)
    batch.cancel()
    assert queue.redrive(member) == 1
    delivery = take(queue)
    assert (delivery.id, delivery.attempt) == (member, 1)
    delivery.ack()
    assert_trail_is_legal(queue, member)
    assert_books_balance(queue, sent=1)


def test_that_a_batch_is_cancelled_is_said_before_anything_about_addresses(queue: Queue) -> None:
    """Another address would not help."""
    batch = queue.batch("nightly")
    first = batch.send(1, address="desk", id="0b8d1a52-6f43-4c1e-9a57-3d2f1e0c9b8a")
    batch.start()
    take(queue)
    batch.cancel()
    for addresses in (["desk"], ["desk", None], [None, "desk"], ["new", "new"]):
        with pytest.raises(BatchClosed, match="nightly"):
            batch.send_many([Outgoing(payload=2, address=address) for address in addresses])
    assert batch.send(1, address="desk", id=first) == first, "it is there already"
    assert_books_balance(queue, sent=1)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_cancelled_batch_is_over_in_every_group_whenever_it_comes(store: Store, ordered: bool) -> None:
    """Also members that the primary group had finished, and in groups that begin later."""
    queue = store.queue("orders", ordered=ordered)
    assert queue.receive(group="early") == []
    batch = queue.batch("nightly")
    members = batch.send_many(["finished", "not begun"])
    batch.start()
    queue.send("bystander")
    take(queue).ack()
    batch.cancel()
    for group in ("early", "late"):
        assert [one.json() for one in queue.receive(limit=9, group=group)] == ["bystander"]
        assert nonzero(assert_books_balance(queue, sent=3, group=group).outcomes) == {"cancelled": 2}
    assert [len(queue.dead_letters(group=group)) for group in ("early", "late", "default")] == [0, 0, 1]
    for member in members:
        for group in ("early", "late", "default"):
            assert_trail_is_legal(queue, member, group)


def test_a_group_that_is_moved_back_passes_a_cancelled_batch_again(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many(["finished", "not begun"])
    batch.start()
    queue.send("bystander")
    take(queue).ack()
    batch.cancel()
    queue.seek("default", "start")
    assert payloads(take_all(queue)) == ["bystander"]
    assert nonzero(assert_books_balance(queue, sent=3).outcomes) == {"cancelled": 2}


def test_a_member_that_is_given_back_behind_another_is_cancelled_then(store: Store) -> None:
    queue = store.queue("orders", ordered=True, max_retries=3)
    queue.send("first")
    batch = queue.batch("nightly")
    member = batch.send("member")
    batch.start()
    first, _ = queue.receive(limit=2)
    batch.cancel()
    first.nak(delay_seconds=7)
    assert trail(queue, member)[-1] == (Event.RELEASE, State.CANCELLED)
    [letter] = queue.dead_letters()
    assert (letter.id, letter.attempts, letter.outcome) == (member, 1, State.CANCELLED)
    assert batch.state == "cancelled"
    assert_books_balance(queue, sent=2)
