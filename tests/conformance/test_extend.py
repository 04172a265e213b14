"""extend: leased -> leased, until later."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock import InvalidInput, LeaseLost, Queue
from tests.conformance.assertions import take, take_all
from tests.conformance.clock import Clock


def test_a_lease_is_extended_from_now_and_not_from_its_end(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    clock.advance(seconds=20)
    end = delivery.extend(53)
    assert end == delivery.lease_ends_at == clock.now + timedelta(seconds=53)


def test_an_extended_lease_outlives_its_first_end(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    clock.advance(seconds=36)
    delivery.extend(53)
    clock.advance(seconds=52)
    assert queue.receive() == []
    delivery.ack()


def test_an_extended_lease_ends_at_its_new_end(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    delivery.extend(53)
    clock.advance(seconds=54)
    with pytest.raises(LeaseLost):
        delivery.ack()
    assert take(queue).attempt == 2


def test_a_lease_is_never_made_shorter(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    assert delivery.extend(3) == delivery.lease_ends_at == clock.now + timedelta(seconds=37)
    clock.advance(seconds=36)
    assert queue.receive() == []
    delivery.ack()


def test_extending_one_delivery_leaves_the_others_of_its_receive_alone(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2, 3])
    first, second, third = take_all(queue)
    second.extend(103)
    clock.advance(seconds=38)
    assert [delivery.json() for delivery in take_all(queue)] == [1, 3]
    second.ack()
    for lost in (first, third):
        with pytest.raises(LeaseLost):
            lost.ack()


def test_a_lease_can_be_extended_again_and_again(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    for _ in range(5):
        clock.advance(seconds=30)
        delivery.extend(37)
    assert queue.receive() == []
    delivery.ack()


def test_a_lease_that_has_ended_cannot_be_extended_even_before_anyone_noticed(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    delivery = take(queue)
    clock.advance(seconds=38)
    with pytest.raises(LeaseLost, match=message_id):
        delivery.extend(53)
    assert take(queue).attempt == 2


@pytest.mark.parametrize("verb", ["ack", "nak", "reject", "reschedule"])
def test_a_settled_message_cannot_be_extended(queue: Queue, verb: str) -> None:
    queue.send(1)
    delivery = take(queue)
    getattr(delivery, verb)()
    with pytest.raises(LeaseLost):
        delivery.extend(53)


def test_a_stale_token_does_not_extend_the_lease_of_the_next_holder(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    stale = take(queue)
    clock.advance(seconds=38)
    holder = take(queue)
    with pytest.raises(LeaseLost):
        stale.extend(1_009)
    clock.advance(seconds=38)
    assert take(queue).attempt == 3
    with pytest.raises(LeaseLost):
        holder.ack()


def test_a_lease_is_never_extended_past_the_expiry_of_its_message(queue: Queue, clock: Clock) -> None:
    queue.send(1, ttl_seconds=613)
    delivery = take(queue)
    assert delivery.extend(1_009) == clock.now + timedelta(seconds=613)


def test_a_lease_is_never_extended_past_a_deadline_that_is_still_ahead(queue: Queue, clock: Clock) -> None:
    deadline = clock.now + timedelta(seconds=211)
    queue.send(1, deadline_at=deadline)
    assert take(queue).extend(1_009) == deadline


def test_extending_is_no_new_attempt(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    delivery.extend(53)
    assert delivery.attempt == 1
    delivery.nak(delay_seconds=0)
    assert take(queue).attempt == 2


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), "long", None, True])
def test_a_bad_duration_is_refused_and_changes_nothing(queue: Queue, clock: Clock, seconds: Any) -> None:
    queue.send(1)
    delivery = take(queue)
    with pytest.raises(InvalidInput, match="seconds"):
        delivery.extend(seconds)
    assert delivery.lease_ends_at == clock.now + timedelta(seconds=37)
    delivery.ack()
