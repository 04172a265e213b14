"""Batches with members in several queues: held, started, ended and cancelled together."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import BatchClosed, InvalidInput, Outgoing, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY


@pytest.fixture
def emails(store: Store) -> Queue:
    return store.queue("emails", **POLICY)


def test_members_in_all_queues_are_held_until_the_batch_is_started(queue: Queue, emails: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send("report")
    ids = batch.send_many(["mail 1", Outgoing(payload="mail 2", priority=3)], queue="emails")
    assert (take_all(queue), take_all(emails)) == ([], [])
    assert (batch.remaining, emails.batches()) == (3, []), "the batch is that of its own queue"
    assert emails.find(ids[1]).priority == 3
    batch.start()
    assert payloads(take_all(queue)) == ["report"]
    mails = take_all(emails)
    assert payloads(mails) == ["mail 1", "mail 2"]
    assert [delivery.batch for delivery in mails] == ["nightly"] * 2


def test_the_end_message_comes_once_into_the_batchs_own_queue_when_the_last_queue_is_done(
    queue: Queue, emails: Queue
) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.send("report")
    mail_id = batch.send("mail", queue="emails")
    batch.start()
    take(queue).ack()
    assert (batch.state, batch.remaining, queue.peek()) == ("running", 1, [])
    take(emails).ack()
    assert (batch.state, batch.finished) == ("finished", 2)
    assert payloads(take_all(queue)) == ["all done"]
    assert emails.receive() == []
    assert_trail_is_legal(emails, mail_id)
    assert_books_balance(queue, sent=2)
    assert_books_balance(emails, sent=1)


def test_members_may_all_be_in_other_queues_and_come_while_it_runs(queue: Queue, emails: Queue) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.send(1, queue="emails")
    batch.start()
    batch.send(2, queue="emails")
    batch.send(3, queue="letters")
    for delivery in take_all(emails):
        delivery.ack()
    assert queue.peek() == []
    take(queue.store.queue("letters")).reject("no stamp")
    assert payloads(take_all(queue)) == ["all done"]


def test_cancelling_ends_what_is_not_in_flight_in_every_queue(queue: Queue, emails: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.set_abort("cancelled")
    batch.send("report")
    batch.send_many(["running", "unread", "retry"], queue="emails")
    batch.send(Outgoing(payload="later", delay_seconds=60), queue="emails")
    batch.start()
    other = take(emails, group="audit")
    running, unread, retry = take_all(emails)
    unread.nak("given back", delay_seconds=0)
    retry.nak("later", delay_seconds=9)
    batch.cancel()
    assert (batch.state, batch.remaining) == ("cancelling", 1)
    assert running.is_cancelled()
    assert (take_all(emails), take_all(queue)) == ([], [])
    cancelled = {dead.json() for dead in emails.dead_letters(group="default") if dead.outcome is State.CANCELLED}
    assert cancelled == {"unread", "retry", "later"}
    running.ack()
    assert batch.state == "cancelled"
    assert payloads(take_all(queue)) == ["cancelled"]
    other.ack()
    clock.advance(seconds=70)
    assert emails.receive() == []
    assert_books_balance(emails, sent=4)


def test_a_batch_that_was_cancelled_takes_no_more_messages_of_any_queue(queue: Queue, emails: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1, queue="emails")
    batch.start()
    running = take(emails)
    batch.cancel()
    for target in (None, "emails", "letters"):
        with pytest.raises(BatchClosed):
            batch.send(2, queue=target)
    running.ack()
    assert_books_balance(emails, sent=1)


def test_batches_of_the_same_name_in_two_queues_are_two_batches(queue: Queue, emails: Queue) -> None:
    ours, theirs = queue.batch("nightly"), emails.batch("nightly")
    ours.send("ours", queue="emails")
    theirs.send("theirs")
    ours.start()
    assert payloads(take_all(emails)) == ["ours"]
    assert (ours.state, theirs.state) == ("running", "open")


def test_naming_the_batchs_own_queue_changes_nothing(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1, queue="orders")
    batch.start()
    assert payloads(take_all(queue)) == [1]


def test_a_member_that_expires_in_another_queue_ends_the_batch(
    queue: Queue, emails: Queue, store: Store, clock: Clock
) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.send(1, ttl_seconds=20, queue="emails")
    batch.send(2, ttl_seconds=20, delay_seconds=60, queue="emails")
    batch.start()
    clock.advance(seconds=21)
    store.sweep()
    assert batch.state == "finished"
    assert payloads(take_all(queue)) == ["all done"]


def test_a_member_that_is_removed_from_another_queue_does_not_hold_the_batch_up(queue: Queue, emails: Queue) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    kept, removed = batch.send_many([1, 2], queue="emails")
    batch.start()
    assert emails.remove([removed]) == 1
    assert batch.remaining == 1
    take(emails).ack()
    assert payloads(take_all(queue)) == ["all done"]
    assert emails.find(kept).batch == "nightly"


@pytest.mark.parametrize("state", ["open", "running", "in flight", "retry"])
def test_a_batch_goes_on_without_members_of_a_queue_that_was_flushed(queue: Queue, emails: Queue, state: str) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.send("report")
    batch.send_many([1, 2], queue="emails")
    if state != "open":
        batch.start()
    if state in ("in flight", "retry"):
        running = take_all(emails)
        if state == "retry":
            running[0].nak("later", delay_seconds=9)
    assert emails.flush() == 2
    assert batch.remaining == 1
    batch.start()
    assert queue.peek(limit=9)[0].json() == "report"
    take(queue).ack()
    assert payloads(take_all(queue)) == ["all done"]


def test_flushing_the_last_members_ends_the_batch(queue: Queue, emails: Queue) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.send_many([1, 2], queue="emails")
    batch.start()
    emails.flush()
    assert batch.state == "finished"
    assert payloads(take_all(queue)) == ["all done"]


@pytest.mark.parametrize("started", [False, True])
def test_flushing_the_queue_of_a_batch_cancels_what_it_holds_elsewhere(
    queue: Queue, emails: Queue, started: bool
) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.set_abort("cancelled")
    batch.send("report")
    ids = batch.send_many([1, 2], queue="emails")
    held = None
    if started:
        batch.start()
        held = take(emails)
    assert queue.flush() == 1
    assert take_all(emails) == [], "nobody would ever start it"
    if held is not None:
        held.ack()
    cancelled = [dead.id for dead in emails.dead_letters() if dead.outcome is State.CANCELLED]
    assert sorted(cancelled) == sorted(ids[1:] if started else ids)
    assert (take_all(queue), queue.batches()) == ([], [])
    assert_books_balance(emails, sent=2)
    emails.flush()


def test_the_members_of_all_queues_are_listed_with_their_states(queue: Queue, emails: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send("report")
    batch.send_many([1, 2], queue="emails")
    waiting = emails.messages("held").messages
    assert [(one.state, one.batch) for one in waiting] == [(State.HELD, "nightly")] * 2
    assert len(queue.messages("held").messages) == 1, "each queue lists its own"
    assert sorted(str(one.queue) for one in batch.members().messages) == ["emails", "emails", "orders"]
    batch.start()
    take(emails).ack()
    pages = [batch.members(limit=2)]
    pages.append(batch.members(limit=2, after=pages[0].next))
    members = [(one.queue, one.state) for page in pages for one in page.messages]
    assert sorted(members) == [("emails", State.READY), ("emails", State.SUCCEEDED), ("orders", State.READY)]


def test_deleting_a_queue_is_a_flush_for_the_batches_of_others(queue: Queue, emails: Queue, store: Store) -> None:
    batch = queue.batch("nightly")
    batch.set_end("all done")
    batch.send_many([1, 2], queue="emails")
    batch.start()
    assert emails.delete() == 2
    assert (batch.state, batch.info().cancelled) == ("finished", 2)
    assert payloads(take_all(queue)) == ["all done"]
    letters = store.queue("letters").batch("weekly")
    mail_id = letters.send(3, queue="orders")
    store.queue("letters").delete()
    assert [dead.id for dead in queue.dead_letters()] == [mail_id]
    store.sweep()
    store.sweep()
    assert queue.find(mail_id).batch is None


def test_a_queue_without_a_primary_group_takes_no_members(queue: Queue, store: Store) -> None:
    store.queue("events", primary_group=None)
    batch = queue.batch("nightly")
    with pytest.raises(InvalidInput, match="events"):
        batch.send(1, queue="events")
    assert queue.batches() == []


def test_a_bad_queue_is_refused_and_nothing_is_sent(queue: Queue) -> None:
    batch = queue.batch("nightly")
    with pytest.raises(InvalidInput, match="queue"):
        batch.send(1, queue="")
    assert queue.batches() == []


def test_a_send_that_is_refused_leaves_no_member_in_any_queue(queue: Queue, emails: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1, address="desk", queue="emails")
    with pytest.raises(Exception, match="desk"):
        batch.send_many([2, Outgoing(payload=3, address="desk")], queue="emails")
    assert batch.remaining == 1
    batch.start()
    assert payloads(take_all(emails)) == [1]


def test_a_batch_over_queues_survives_closing_the_store(open_store: Opener) -> None:
    first = open_store()
    batch = first.queue("orders").batch("nightly")
    batch.set_end("all done")
    batch.send("report")
    batch.send("mail", queue="emails")
    first.close()
    second = open_store()
    second.queue("orders").batch("nightly").start()
    for name in ("emails", "orders"):
        take(second.queue(name)).ack()
    assert payloads(take_all(second.queue("orders"))) == ["all done"]


def test_an_ended_batch_is_kept_for_the_history_of_its_own_queue(
    queue: Queue, emails: Queue, store: Store, clock: Clock
) -> None:
    store.queue("emails", history_seconds=90_000)
    batch = queue.batch("nightly")
    mail_id = batch.send("mail", queue="emails")
    batch.start()
    take(emails).ack()
    assert emails.find(mail_id).batch == "nightly"
    clock.advance(seconds=7_002)
    queue.send("next")
    store.sweep()
    clock.advance(seconds=7_002)
    store.sweep()
    assert queue.batches() == []
    assert emails.find(mail_id).payload == b'"mail"'
    assert emails.flush() == 1


def test_the_last_members_of_two_queues_ended_at_once_send_one_end_message(open_store: Opener) -> None:
    stores = [open_store(), open_store()]
    queue = stores[0].queue("orders")
    for round_ in range(10):
        batch = queue.batch(f"nightly {round_}")
        batch.set_end("all done")
        batch.send("report", queue="reports")
        batch.send("mail", queue="emails")
        batch.start()
        last = [take(stores[0].queue("reports")), take(stores[1].queue("emails"))]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda delivery: delivery.ack(), last))
        # When neither transaction could wait for the other, the next sweep or receive ends the batch.
        stores[0].sweep()
        assert batch.state == "finished"
        assert payloads(take_all(queue)) == ["all done"]
