"""ack, nak, reject and reschedule of single deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import Delivery, Event, InvalidInput, LeaseLost, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, take, trail
from tests.conformance.clock import Chance, Clock

VERBS = ("ack", "nak", "reject", "reschedule")


def settle(delivery: Delivery, verb: str) -> None:
    getattr(delivery, verb)(reason="because")


# -- ack ---------------------------------------------------------------------------------------------------------


def test_an_acked_message_succeeded_and_never_comes_back(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    clock.advance(seconds=2)
    take(queue, consumer="press 4").ack("printed")
    clock.advance(seconds=10_007)
    assert queue.receive() == []
    entry = queue.audit(message_id)[-1]
    assert (entry.event, entry.state, entry.by) == (Event.ACK, State.SUCCEEDED, "press 4")
    assert (entry.reason, entry.group, entry.attempt) == ("printed", "default", 1)
    assert entry.at == clock.now - timedelta(seconds=10_007)


def test_an_acked_message_leaves_no_dead_letter(queue: Queue) -> None:
    queue.send(1)
    take(queue).ack()
    assert queue.dead_letters() == []
    assert assert_books_balance(queue, sent=1).done == 1


# -- nak ---------------------------------------------------------------------------------------------------------


def test_a_nak_without_delay_waits_for_the_backoff(queue: Queue, clock: Clock, chance: Chance) -> None:
    chance.value = 0.25
    queue.send(1)
    take(queue).nak("busy")
    clock.advance(seconds=11.9)  # 11 s backoff and a quarter of 4 s jitter
    assert queue.receive() == []
    clock.advance(seconds=0.2)
    assert take(queue).attempt == 2


def test_a_nak_with_a_delay_of_zero_is_ready_at_once(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).nak("busy", delay_seconds=0)
    assert take(queue).attempt == 2
    assert trail(queue, message_id)[-2:] == [(Event.NAK, State.READY), (Event.RECEIVE, State.LEASED)]


def test_a_nak_with_its_own_delay_waits_that_long(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    take(queue).nak("busy", delay_seconds=19)
    clock.advance(seconds=18)
    assert queue.receive() == []
    clock.advance(seconds=2)
    assert take(queue).attempt == 2


def test_a_nak_with_a_negative_delay_is_ready_at_once(queue: Queue) -> None:
    queue.send(1)
    take(queue).nak("busy", delay_seconds=-5)
    assert take(queue).attempt == 2


def test_the_reason_of_a_nak_is_in_the_audit(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue, consumer="press 4").nak("paper jam")
    entry = queue.audit(message_id)[-1]
    assert (entry.event, entry.state, entry.by) == (Event.NAK, State.HELD, "press 4")
    assert (entry.reason, entry.attempt) == ("paper jam", 1)


def test_an_exception_is_a_reason(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).nak(ValueError("paper jam"))
    assert queue.audit(message_id)[-1].reason == "ValueError: paper jam"


# -- reject ------------------------------------------------------------------------------------------------------


def test_a_rejected_message_is_a_dead_letter_at_once(queue: Queue, clock: Clock) -> None:
    message_id = queue.send({"order": 7})
    clock.advance(seconds=5)
    take(queue).reject("no such order")
    [dead] = queue.dead_letters()
    assert (dead.id, dead.outcome, dead.reason, dead.attempts) == (message_id, State.REJECTED, "no such order", 1)
    assert (dead.queue, dead.group, dead.json(), dead.died_at) == ("orders", "default", {"order": 7}, clock.now)
    clock.advance(seconds=10_007)
    assert queue.receive() == []


# -- reschedule --------------------------------------------------------------------------------------------------


def test_a_rescheduled_message_comes_back_later_as_if_new(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    take(queue).nak(delay_seconds=0)
    take(queue).reschedule(71, "not yet open")
    clock.advance(seconds=70)
    assert queue.receive() == []
    clock.advance(seconds=2)
    assert take(queue).attempt == 1


def test_rescheduling_again_and_again_uses_up_no_retries(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    for _ in range(9):
        take(queue).reschedule(71)
        clock.advance(seconds=72)
    assert take(queue).attempt == 1
    assert queue.dead_letters() == []
    assert_trail_is_legal(queue, message_id)


def test_a_reschedule_without_a_delay_is_an_hour(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    take(queue).reschedule()
    clock.advance(seconds=3_599)
    assert queue.receive() == []
    clock.advance(seconds=2)
    assert take(queue).attempt == 1


def test_a_reschedule_of_zero_is_ready_at_once(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).reschedule(0)
    assert trail(queue, message_id)[-1] == (Event.RESCHEDULE, State.READY)
    assert take(queue).attempt == 1


def test_a_reschedule_moves_the_expiry_by_the_same_delay(queue: Queue, clock: Clock) -> None:
    queue.send(1, ttl_seconds=613)
    expires_at = clock.now + timedelta(seconds=613)
    take(queue).reschedule(1_009)
    clock.advance(seconds=1_010)
    assert take(queue).expires_at == expires_at + timedelta(seconds=1_009)


def test_the_audit_of_a_reschedule_has_its_reason(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).reschedule(71, "not yet open")
    entry = queue.audit(message_id)[-1]
    assert (entry.event, entry.state, entry.reason) == (Event.RESCHEDULE, State.HELD, "not yet open")


# -- law 3: tokens -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", VERBS)
def test_the_same_settle_again_is_harmless_and_happens_once(queue: Queue, verb: str) -> None:
    message_id = queue.send(1)
    delivery = take(queue)
    settle(delivery, verb)
    before = queue.audit(message_id)
    settle(delivery, verb)
    assert queue.audit(message_id) == before
    assert_books_balance(queue, sent=1)


@pytest.mark.parametrize("first", VERBS)
@pytest.mark.parametrize("second", VERBS)
def test_a_different_settle_after_the_first_loses_and_changes_nothing(queue: Queue, first: str, second: str) -> None:
    if first == second:
        return  # the same settle again: the test above
    message_id = queue.send(1)
    delivery = take(queue)
    settle(delivery, first)
    before = queue.audit(message_id)
    with pytest.raises(LeaseLost, match=message_id):
        settle(delivery, second)
    assert queue.audit(message_id) == before
    assert_books_balance(queue, sent=1)


@pytest.mark.parametrize("verb", VERBS)
def test_a_lease_that_has_ended_cannot_be_settled_even_before_anyone_noticed(
    queue: Queue, clock: Clock, verb: str
) -> None:
    message_id = queue.send(1)
    delivery = take(queue)
    clock.advance(seconds=38)
    with pytest.raises(LeaseLost, match=message_id):
        settle(delivery, verb)
    assert take(queue).attempt == 2


@pytest.mark.parametrize("verb", VERBS)
def test_a_stale_token_changes_nothing_for_the_next_holder(queue: Queue, clock: Clock, verb: str) -> None:
    queue.send(1)
    stale = take(queue)
    clock.advance(seconds=38)
    holder = take(queue)
    with pytest.raises(LeaseLost):
        settle(stale, verb)
    assert queue.stats("default").in_progress == 1
    holder.ack()
    assert assert_books_balance(queue, sent=1).done == 1


def test_a_repeated_nak_does_not_disturb_the_next_holder(queue: Queue) -> None:
    queue.send(1)
    first = take(queue)
    first.nak("busy", delay_seconds=0)
    holder = take(queue)
    first.nak("busy", delay_seconds=0)
    assert queue.receive() == []
    holder.ack()


def test_settling_one_delivery_leaves_the_others_of_its_receive_leased(queue: Queue) -> None:
    queue.send_many([1, 2, 3, 4, 5])
    deliveries = queue.receive(limit=5)
    deliveries[3].ack()
    deliveries[0].reject("no")
    deliveries[2].nak("busy")
    stats = assert_books_balance(queue, sent=5)
    assert (stats.in_progress, stats.done, stats.dead, stats.held) == (2, 1, 1, 1)
    deliveries[1].ack()
    deliveries[4].ack()
    assert assert_books_balance(queue, sent=5).done == 3


# -- law 12: bad input -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["nak", "reschedule"])
@pytest.mark.parametrize("delay", [float("nan"), float("inf"), "soon", True, 10**12])
def test_a_bad_delay_is_refused_and_the_lease_goes_on(queue: Queue, verb: str, delay: Any) -> None:
    queue.send(1)
    delivery = take(queue)
    with pytest.raises(InvalidInput, match="delay_seconds"):
        getattr(delivery, verb)(delay_seconds=delay)
    delivery.ack()


def test_a_delivery_cannot_be_settled_through_another_queue(queue: Queue, store: Store) -> None:
    from penstock import Ack

    queue.send(1)
    delivery = take(queue)
    with pytest.raises(InvalidInput, match="orders"):
        store.queue("another").settle([Ack(delivery)])
    delivery.ack()


def test_a_reason_that_is_not_valid_text_is_kept_escaped(queue: Queue) -> None:
    queue.send(1)
    take(queue).reject(FileNotFoundError("caf\udce9.txt"))
    assert queue.dead_letters()[0].reason == r"FileNotFoundError: caf\udce9.txt"


def test_a_long_reason_with_odd_characters_is_kept_as_it_is(queue: Queue) -> None:
    reason = "'; drop table penstock_log; -- %s {} <b> \N{SNOWMAN} \x00 \n" * 200
    queue.send(1)
    take(queue).reject(reason)
    assert queue.dead_letters()[0].reason == reason
