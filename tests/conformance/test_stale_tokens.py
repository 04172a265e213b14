"""Tokens of earlier deliveries change nothing."""

from __future__ import annotations

import pytest

from penstock import Ack, Delivery, LeaseLost, Nak, Queue, Reject, Reschedule, Settlement
from tests.conformance.assertions import take
from tests.conformance.clock import Clock


def read_again(queue: Queue, clock: Clock) -> tuple[Delivery, Delivery]:
    """An acked delivery, and the delivery of the same message after a seek back: a first attempt again."""
    queue.send_many([1, 2])
    first = take(queue)
    first.ack()
    queue.seek("default", "start")
    clock.advance(seconds=1)
    second = take(queue)
    assert (first.id, first.token != second.token) == (second.id, True)
    return first, second


def lapsed(queue: Queue, clock: Clock) -> tuple[Delivery, Delivery]:
    """A delivery whose lease ended, and the one that followed it: a retry."""
    queue.send(1)
    first = take(queue)
    clock.advance(seconds=38)
    return first, take(queue)


@pytest.mark.parametrize("returns", [read_again, lapsed])
@pytest.mark.parametrize("verb", ["nak", "reject", "reschedule"])
def test_a_stale_settlement_is_refused_and_the_holder_keeps_the_message(
    queue: Queue, clock: Clock, returns: object, verb: str
) -> None:
    stale, current = read_again(queue, clock) if returns is read_again else lapsed(queue, clock)
    settlements: dict[str, Settlement] = {
        "nak": Nak(stale, "why"),
        "reject": Reject(stale, "why"),
        "reschedule": Reschedule(stale, 60),
    }
    (refused,) = queue.settle([settlements[verb]])
    assert isinstance(refused.error, LeaseLost)
    assert queue.stats("default").in_progress == 1
    current.ack()


def test_a_repeated_ack_of_an_earlier_delivery_does_not_end_the_message_again(queue: Queue, clock: Clock) -> None:
    stale, current = read_again(queue, clock)
    queue.settle([Ack(stale)])
    queue.ack_many([stale])
    assert queue.stats("default").in_progress == 1
    current.nak("still ours", 0)


def test_a_stale_token_extends_nothing(queue: Queue, clock: Clock) -> None:
    stale, current = read_again(queue, clock)
    with pytest.raises(LeaseLost):
        stale.extend(600)
    clock.advance(seconds=38)
    assert take(queue).id == current.id
