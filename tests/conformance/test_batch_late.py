"""Sends to an ended batch are refused, and never open a new batch that nobody starts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import Batch, BatchClosed, Delivery, DuplicateAddress, NotFound, Queue
from penstock.domain.message import draft
from tests.conformance.assertions import assert_books_balance, payloads, take, take_all
from tests.conformance.clients import Opener

ROUNDS = 15


@pytest.fixture
def finished(queue: Queue) -> Batch:
    """A batch with one finished member."""
    batch = queue.batch("nightly")
    batch.send("monday")
    batch.start()
    take(queue).ack()
    return batch


def test_a_late_member_is_refused_and_nothing_is_held(queue: Queue, finished: Batch) -> None:
    with pytest.raises(BatchClosed, match=r"batch 'nightly' of queue 'orders' is finished .*queue\.batch"):
        finished.send("late")
    with pytest.raises(BatchClosed, match="finished"):
        finished.send_many(["late", "later"])
    assert queue.stats("default").held == 0
    assert [info.state for info in queue.batches()] == ["finished"]
    assert_books_balance(queue, sent=1)


def test_a_late_end_message_is_refused(queue: Queue, finished: Batch) -> None:
    for change in (finished.set_end, finished.set_abort):
        with pytest.raises(BatchClosed, match="finished"):
            change("late")
    assert [info.state for info in queue.batches()] == ["finished"]


def test_a_member_of_a_batch_that_was_cancelled_is_refused(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    assert batch.cancel().state == "cancelled"
    with pytest.raises(BatchClosed, match="is cancelled"):
        batch.send(2)
    assert_books_balance(queue, sent=1)


def test_a_late_member_does_not_get_into_the_next_batch_of_the_name(queue: Queue, finished: Batch) -> None:
    again = queue.batch("nightly")
    again.send("tuesday")
    with pytest.raises(BatchClosed, match="finished"):
        finished.send("late")
    assert (finished.start().state, again.state) == ("finished", "open")
    assert (finished.cancel().state, again.state) == ("finished", "open")
    again.start()
    assert payloads(take_all(queue)) == ["tuesday"]


def test_whoever_comes_while_a_batch_is_open_or_runs_fills_it(queue: Queue) -> None:
    first, second = queue.batch("nightly"), queue.batch("nightly")
    first.send(1)
    second.send(2)
    first.start()
    third = queue.batch("nightly")
    third.send(3)
    assert (first.info().total, second.info(), third.info()) == (3, first.info(), first.info())


@pytest.mark.usefixtures("finished")
def test_starting_or_cancelling_a_batch_that_has_ended_begins_no_other(queue: Queue) -> None:
    for change in ("start", "cancel"):
        batch = queue.batch("nightly")
        assert getattr(batch, change)().state == "finished"
        with pytest.raises(BatchClosed, match="finished"):
            batch.send("late")
    assert len(queue.batches()) == 1


def test_a_refused_first_member_begins_no_batch(queue: Queue) -> None:
    batch = queue.batch("nightly")
    queue.send(1, address="desk")
    with pytest.raises(DuplicateAddress, match="desk"):
        batch.send(2, address="desk")
    assert queue.batches() == []
    with pytest.raises(NotFound, match="nightly"):
        batch.info()


def test_a_send_by_name_begins_the_first_batch_but_none_after_it(queue: Queue) -> None:
    engine = queue.engine
    engine.send("orders", [draft(1, "nightly")], None)
    assert queue.batch("nightly").start().total == 1
    engine.send("orders", [draft(2, "nightly")], None)
    queue.ack_many(take_all(queue))
    assert queue.batch("nightly").state == "finished"
    with pytest.raises(BatchClosed, match=r"finished .*open a new one"):
        engine.send("orders", [draft(3, "nightly")], None)
    assert engine.batch_open("orders", "nightly", None, None).state == "open"
    engine.send("orders", [draft(4, "nightly")], None)
    queue.batch("nightly").start()
    assert payloads(take_all(queue)) == [4]


@pytest.mark.usefixtures("finished")
def test_numbers_of_batches_that_are_gone_are_not_used_again(queue: Queue) -> None:
    """A Batch object bound before the removal is bound to the next batch of the name."""
    again = queue.batch("nightly")
    queue.send(1, address="desk")
    with pytest.raises(DuplicateAddress):
        again.send(2, address="desk")
    queue.flush()
    assert queue.batches() == []
    again.send("tuesday")
    again.send("tuesday too")
    assert again.start().total == 2
    assert len(queue.batches()) == 1


def test_law_9_a_member_sent_with_the_last_ack_joins_or_is_refused(live_queue: Queue, open_store: Opener) -> None:
    other = open_store(clock=None).queue("orders")
    late = 0
    for turn in range(ROUNDS):
        batch = live_queue.batch(f"batch {turn}")
        batch.send("first")
        batch.set_end("end")
        batch.start()
        producer = other.batch(f"batch {turn}")
        producer.set_abort("never")
        [last] = live_queue.receive()
        late += _at_once(last, producer)
        members = take_all(live_queue)
        live_queue.ack_many(members)
        rest = take_all(live_queue)
        live_queue.ack_many(rest)
        assert sorted(payloads([*members, *rest])) in (["end"], ["end", "late"])
        assert batch.state == producer.state == "finished"
    assert live_queue.stats("default").held == 0
    assert len(live_queue.batches()) == ROUNDS
    assert late <= ROUNDS


def _at_once(last: Delivery, producer: Batch) -> int:
    """The last ack and a concurrent send; returns 1 when the send was refused."""
    ready = threading.Barrier(2)

    def send() -> int:
        ready.wait(timeout=60)
        try:
            producer.send("late")
        except BatchClosed:
            return 1
        return 0

    with ThreadPoolExecutor(1) as threads:
        sent = threads.submit(send)
        ready.wait(timeout=60)
        last.ack()
        return sent.result(timeout=60)
