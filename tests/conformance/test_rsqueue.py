"""The document of rsqueue, sentence by sentence, on every engine. `docs/seeds.md` names the test of each sentence."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import DuplicateAddress, InvalidInput, LeaseLost, MessageFailed, Nak, Queue, Reject, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all, trail
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock

# -- work and permits ------------------------------------------------------------------------------------------------


def test_work_is_any_json_value_under_the_name_of_its_queue(store: Store) -> None:
    store.queue("jobs").send({"render": [1, None, "ü"]})
    store.queue("sweep").send(2)
    assert payloads(take_all(store.queue("jobs"))) == [{"render": [1, None, "ü"]}]
    assert payloads(take_all(store.queue("sweep"))) == [2]


def test_lower_numbers_have_the_higher_priority(store: Store) -> None:
    queue = store.queue("jobs")
    for priority in (2, 0, 1, 0):
        queue.send(priority, priority=priority)
    assert payloads(take_all(queue)) == [0, 0, 1, 2]


def test_a_permit_is_kept_by_extending_it_and_without_that_the_work_is_available_again(
    queue: Queue, clock: Clock
) -> None:
    message_id = queue.send(1)
    holder = take(queue)
    clock.advance(seconds=30)
    holder.extend(37)
    clock.advance(seconds=30)
    assert queue.receive() == []
    clock.advance(seconds=8)
    assert take(queue).id == message_id
    with pytest.raises(LeaseLost):
        holder.ack()


def test_work_that_is_gone_for_good_after_an_error_has_no_retries(store: Store) -> None:
    queue = store.queue("jobs", max_retries=0)
    queue.send(1, address="report")
    take(queue).nak("broken")
    assert queue.receive() == []
    assert [dead.outcome for dead in queue.dead_letters()] == [State.FAILED]


# -- addresses -------------------------------------------------------------------------------------------------------


def test_is_live_says_whether_an_address_has_work(queue: Queue, store: Store) -> None:
    assert not queue.is_live("report")
    queue.send(1, address="report", delay_seconds=5)
    assert queue.is_live("report")
    assert not queue.is_live("another")
    assert not store.queue("never used").is_live("report")


def test_an_address_is_live_until_its_work_has_ended(queue: Queue, clock: Clock) -> None:
    queue.send(1, address="report")
    delivery = take(queue)
    assert queue.is_live("report"), "also while it runs"
    delivery.nak("once more", delay_seconds=5)
    assert queue.is_live("report"), "also while it waits for a retry"
    clock.advance(seconds=5)
    take(queue).ack()
    assert not queue.is_live("report")
    queue.send(2, address="report")
    assert queue.is_live("report")


def test_an_address_whose_work_has_expired_is_not_live_before_any_sweep(queue: Queue, clock: Clock) -> None:
    queue.send(1, address="report", ttl_seconds=5)
    with pytest.raises(DuplicateAddress):
        queue.send(2, address="report")
    clock.advance(seconds=6)
    assert not queue.is_live("report")
    queue.send(2, address="report")
    assert queue.is_live("report")


def test_a_bad_address_is_refused(queue: Queue) -> None:
    with pytest.raises(InvalidInput, match="address"):
        queue.is_live("")


@pytest.mark.parametrize("give_up", ["nak", "reject", "settle nak", "settle reject"])
def test_the_error_of_failed_addressed_work_has_its_code(queue: Queue, store: Store, give_up: str) -> None:
    store.queue("orders", max_retries=0)
    queue.send(1, address="report")
    delivery = take(queue)
    if give_up == "nak":
        delivery.nak("no paper", code="E42")
    elif give_up == "reject":
        delivery.reject("no paper", code="E42")
    else:
        made: Any = (
            Nak(delivery, "no paper", code="E42") if "nak" in give_up else Reject(delivery, "no paper", code="E42")
        )
        assert [result.ok for result in queue.settle([made])] == [True]
    with pytest.raises(MessageFailed, match="no paper") as caught:
        queue.wait("report", timeout_seconds=1)
    assert (caught.value.code, caught.value.reason) == ("E42", "no paper")


class PrinterError(Exception):
    code = 507


def test_the_code_of_an_exception_is_the_code_of_the_error(queue: Queue) -> None:
    queue.send(1, address="report")
    take(queue).reject(PrinterError("no paper"))
    with pytest.raises(MessageFailed) as caught:
        queue.wait("report", timeout_seconds=1)
    assert (caught.value.code, caught.value.reason) == ("507", "PrinterError: no paper")


def test_an_error_without_a_code_has_none_also_after_one_with_a_code(queue: Queue, store: Store) -> None:
    queue.send(1, address="report")
    take(queue).reject("no paper", code="E42")
    assert queue.redrive() == 1
    take(queue).reject("no ink")
    with pytest.raises(MessageFailed, match="no ink") as caught:
        queue.wait("report", timeout_seconds=1)
    assert caught.value.code is None
    queue.send(2, address="report")
    take(queue).ack()
    assert queue.wait("report", timeout_seconds=1) is State.SUCCEEDED


def test_the_code_of_an_earlier_attempt_is_not_that_of_the_last_error(store: Store, clock: Clock) -> None:
    queue = store.queue("jobs", max_retries=1)
    queue.send(1, address="report")
    take(queue).nak("no paper", delay_seconds=0, code="E42")
    take(queue)
    clock.advance(seconds=3_600)
    store.sweep()
    with pytest.raises(MessageFailed, match="lease ended") as caught:
        queue.wait("report", timeout_seconds=1)
    assert caught.value.code is None


def test_repeating_a_settlement_with_its_code_is_harmless(queue: Queue) -> None:
    message_id = queue.send(1, address="report")
    delivery = take(queue)
    delivery.reject("no paper", code=7)
    delivery.reject("no paper", code=7)
    assert [state for _, state in trail(queue, message_id)] == [State.READY, State.LEASED, State.REJECTED]


@pytest.mark.parametrize("code", ["", "a\nb", 1.5, True, "x" * 256], ids=repr)
def test_a_bad_code_is_refused_and_nothing_is_settled(queue: Queue, code: Any) -> None:
    queue.send(1)
    delivery = take(queue)
    with pytest.raises(InvalidInput, match="code"):
        delivery.reject("no paper", code=code)
    delivery.ack()


# -- groups of work --------------------------------------------------------------------------------------------------


def test_running_members_learn_that_their_batch_was_cancelled(queue: Queue, clock: Clock) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2, 3])
    other = queue.send("not a member")
    batch.start()
    first, second, third, outsider = sorted(take_all(queue), key=lambda delivery: str(delivery.json()))
    first.nak("once more", delay_seconds=0)
    again = take(queue)
    assert [one.is_cancelled() for one in (again, second, third, outsider)] == [False] * 4
    batch.cancel()
    assert [one.is_cancelled() for one in (again, second, third, outsider)] == [True, True, True, False]
    again.ack()
    second.nak("stopped early")
    third.reject("stopped early")
    outsider.ack()
    assert batch.state == "cancelled"
    outcomes = {str(letter.json()): letter.outcome for letter in queue.dead_letters()}
    assert outcomes == {"2": State.CANCELLED, "3": State.REJECTED}
    assert_trail_is_legal(queue, other)


def test_a_redriven_member_is_no_member_of_its_cancelled_batch(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.start()
    batch.cancel()
    assert queue.redrive() == 1
    assert not take(queue).is_cancelled()


def test_another_process_learns_of_the_cancel_too(open_store: Opener) -> None:
    ours, theirs = open_store().queue("orders"), open_store().queue("orders")
    ours.batch("nightly").send(1)
    ours.batch("nightly").start()
    running = take(theirs)
    ours.batch("nightly").cancel()
    assert running.is_cancelled()
    running.ack()
    assert_books_balance(ours, sent=1)
