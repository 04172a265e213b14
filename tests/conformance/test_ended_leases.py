"""An ended lease settles nothing, even if no one else has received the message."""

from __future__ import annotations

import pytest

from penstock import Ack, Delivery, LeaseLost, Nak, Queue, Reject, Reschedule, Settlement
from tests.conformance.assertions import take
from tests.conformance.clock import Clock


def first_attempt(queue: Queue) -> Delivery:
    queue.send(1)
    return take(queue)


def retry(queue: Queue) -> Delivery:
    first_attempt(queue).nak("again", 0)
    return take(queue)


@pytest.mark.parametrize("attempt", [first_attempt, retry], ids=["first attempt", "retry"])
@pytest.mark.parametrize("verb", ["ack", "nak", "reject", "reschedule", "two"])
def test_a_settlement_after_the_end_is_refused(queue: Queue, clock: Clock, attempt: object, verb: str) -> None:
    late = first_attempt(queue) if attempt is first_attempt else retry(queue)
    clock.advance(seconds=38)
    several: dict[str, list[Settlement]] = {
        "ack": [Ack(late)],
        "nak": [Nak(late, "why")],
        "reject": [Reject(late, "why")],
        "reschedule": [Reschedule(late, 60)],
        "two": [Ack(late), Ack(late)],
    }
    assert all(isinstance(one.error, LeaseLost) for one in queue.settle(several[verb]))
    with pytest.raises(LeaseLost):
        queue.ack_many([late])
    assert (take(queue).id, queue.stats("default").done) == (late.id, 0)


@pytest.mark.parametrize("attempt", [first_attempt, retry], ids=["first attempt", "retry"])
def test_an_ended_lease_cannot_be_extended(queue: Queue, clock: Clock, attempt: object) -> None:
    late = first_attempt(queue) if attempt is first_attempt else retry(queue)
    clock.advance(seconds=38)
    with pytest.raises(LeaseLost):
        late.extend(60)
    assert take(queue).id == late.id


def test_a_retry_that_is_due_does_not_bring_a_later_one_along(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2])
    early, late = queue.receive(limit=2)
    early.nak("soon", 10)
    late.nak("later", 100)
    clock.advance(seconds=11)
    assert [one.id for one in queue.receive(limit=2)] == [early.id]


def test_a_held_message_that_is_due_does_not_bring_a_later_one_along(queue: Queue, clock: Clock) -> None:
    early = queue.send(1, delay_seconds=10)
    queue.send(2, delay_seconds=100)
    clock.advance(seconds=11)
    assert [one.id for one in queue.receive(limit=2)] == [early]
