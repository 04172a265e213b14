"""settle: many settlements in one transaction, with a result for each."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Ack, InvalidInput, LeaseLost, Nak, Queue, Reject, Reschedule, State, Store
from tests.conformance.assertions import assert_books_balance, nonzero, take, take_all
from tests.conformance.clock import Clock


def test_every_kind_of_settlement_has_its_result_in_the_order_given(queue: Queue) -> None:
    sent = queue.send_many([1, 2, 3, 4])
    first, second, third, fourth = take_all(queue)
    results = queue.settle([Reschedule(fourth, 60), Nak(second, "why"), Ack(first), Reject(third, "never")])
    assert [(result.id, result.state) for result in results] == [
        (sent[3], State.HELD),
        (sent[1], State.HELD),
        (sent[0], State.SUCCEEDED),
        (sent[2], State.REJECTED),
    ]
    assert all(result.ok and result.error is None for result in results)
    stats = assert_books_balance(queue, sent=4)
    assert (stats.held, stats.done, stats.dead, stats.in_progress) == (2, 1, 1, 0)


def test_settling_nothing_gives_nothing(queue: Queue) -> None:
    assert queue.settle([]) == []


def test_a_lost_lease_answers_for_itself_and_the_others_are_settled(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2])
    lost = take(queue)
    clock.advance(seconds=30)
    held = take(queue)
    clock.advance(seconds=10)
    results = queue.settle([Ack(lost), Ack(held)])
    assert [result.ok for result in results] == [False, True]
    assert isinstance(results[0].error, LeaseLost)
    assert results[0].state is None
    assert results[0].id == lost.id
    assert lost.id in str(results[0].error)
    assert assert_books_balance(queue, sent=2).done == 1


def test_the_same_settlement_twice_in_one_call_is_harmless(queue: Queue) -> None:
    queue.send(1)
    delivery = take(queue)
    results = queue.settle([Ack(delivery), Ack(delivery)])
    assert [(result.ok, result.state) for result in results] == [(True, State.SUCCEEDED)] * 2
    assert assert_books_balance(queue, sent=1).done == 1


def test_of_two_different_settlements_in_one_call_the_first_holds(queue: Queue) -> None:
    queue.send(1)
    delivery = take(queue)
    results = queue.settle([Reject(delivery, "never"), Ack(delivery)])
    assert [result.ok for result in results] == [True, False]
    assert queue.dead_letters()[0].outcome is State.REJECTED
    assert_books_balance(queue, sent=1)


def test_the_same_settlement_in_a_later_call_gives_the_same_state(queue: Queue) -> None:
    queue.send_many([1, 2])
    first, second = take_all(queue)
    before = queue.settle([Nak(first, "why"), Reject(second, "never")])
    assert queue.settle([Nak(first, "why"), Reject(second, "never")]) == before


def test_deliveries_of_several_groups_are_settled_in_one_call(queue: Queue) -> None:
    queue.send(1)
    mine, theirs = take(queue), take(queue, group="billing")
    results = queue.settle([Reject(theirs, "no"), Ack(mine)])
    assert [result.state for result in results] == [State.REJECTED, State.SUCCEEDED]
    assert nonzero(queue.stats("default").outcomes) == {"succeeded": 1}
    assert nonzero(queue.stats("billing").outcomes) == {"rejected": 1}


def test_deliveries_of_several_receives_are_settled_in_one_call(queue: Queue) -> None:
    queue.send_many(list(range(9)))
    deliveries = [*queue.receive(limit=4), *queue.receive(limit=4), *queue.receive(limit=4)]
    results = queue.settle([Ack(delivery) for delivery in reversed(deliveries)])
    assert [result.id for result in results] == [delivery.id for delivery in reversed(deliveries)]
    assert assert_books_balance(queue, sent=9).done == 9


def test_a_thousand_naks_are_one_call(queue: Queue, clock: Clock) -> None:
    queue.send_many(list(range(1_000)))
    results = queue.settle([Nak(delivery, f"reason {delivery.json()}") for delivery in take_all(queue)])
    assert {result.state for result in results} == {State.HELD}
    assert assert_books_balance(queue, sent=1_000).held == 1_000
    clock.advance(seconds=16)
    again = take_all(queue)
    assert len(again) == 1_000
    assert {delivery.attempt for delivery in again} == {2}
    assert queue.audit(again[617].id)[2].reason == "reason 617"


@pytest.mark.parametrize("wrong", ["ack", None, 7, ()])
def test_something_that_is_no_settlement_is_refused_and_nothing_is_settled(queue: Queue, wrong: Any) -> None:
    queue.send(1)
    delivery = take(queue)
    with pytest.raises(InvalidInput, match="Ack, Nak, Reject or Reschedule"):
        queue.settle([Ack(delivery), wrong])
    assert queue.stats("default").in_progress == 1


@pytest.mark.parametrize("wrong", [None, 7, "019a8c3e-7b2d-7abc-8def-00000000002a"])
def test_what_is_no_delivery_is_refused_and_nothing_is_settled(queue: Queue, wrong: Any) -> None:
    queue.send(1)
    delivery = take(queue)
    with pytest.raises(InvalidInput, match="takes a delivery"):
        queue.settle([Ack(delivery), Ack(wrong)])
    assert queue.stats("default").in_progress == 1


def test_a_delivery_of_another_queue_is_refused_and_nothing_is_settled(queue: Queue, store: Store) -> None:
    queue.send(1)
    other = store.queue("other")
    other.send(2)
    mine, theirs = take(queue), take(other)
    with pytest.raises(InvalidInput, match="other"):
        queue.settle([Ack(mine), Ack(theirs)])
    assert queue.stats("default").in_progress == 1
    assert other.stats("default").in_progress == 1


def test_delays_of_one_call_may_be_whole_numbers_and_fractions(queue: Queue, clock: Clock) -> None:
    queue.send_many([b"1", b"2", b"3"])
    one, two, three = queue.receive(limit=3)
    results = queue.settle([Nak(one, "a", 2), Nak(two, "b", 0.5), Nak(three, "c")])
    assert [str(result.state) for result in results] == ["held", "held", "held"]
    clock.advance(seconds=1)
    assert [delivery.payload for delivery in queue.receive(limit=3)] == [b"2"]


def test_one_settlement_without_a_list_is_refused(queue: Queue) -> None:
    queue.send(1)
    one: Any = Ack(take(queue))
    with pytest.raises(InvalidInput, match=r"settle takes a list such as \[Ack\(delivery\)\], not Ack"):
        queue.settle(one)
    assert queue.stats("default").in_progress == 1


def test_settlements_of_a_generator_are_settled_in_its_order(queue: Queue) -> None:
    queue.send_many([1, 2])
    several: Any = (Ack(delivery) for delivery in take_all(queue))
    assert [settled.state for settled in queue.settle(several)] == [State.SUCCEEDED] * 2
