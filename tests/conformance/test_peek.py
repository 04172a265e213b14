"""peek: the next messages, without receiving them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import InvalidInput, Outgoing, Queue
from tests.conformance.assertions import ids, payloads, take, take_all
from tests.conformance.clock import Clock


def test_a_peek_shows_what_a_receive_would_give_in_that_order(queue: Queue) -> None:
    queue.send_many([Outgoing(payload=n, priority=n % 3) for n in range(9)])
    for delivery in queue.receive(limit=4):
        delivery.nak("busy", delay_seconds=0)
    shown = queue.peek(limit=100)
    assert len(shown) == 9
    assert ids(shown) == ids(take_all(queue))


def test_a_peek_changes_nothing(queue: Queue) -> None:
    message_id = queue.send(1)
    for _ in range(3):
        assert ids(queue.peek()) == [message_id]
    assert len(queue.audit(message_id)) == 1
    assert take(queue).attempt == 1


def test_a_peek_shows_ten_unless_told_otherwise(queue: Queue) -> None:
    queue.send_many(list(range(13)))
    assert payloads(queue.peek()) == list(range(10))
    assert payloads(queue.peek(limit=2)) == [0, 1]


def test_leased_held_and_finished_messages_are_not_shown(queue: Queue) -> None:
    queue.send_many(["acked", "leased", "retried"])
    acked, _leased, retried = take_all(queue)
    acked.ack()
    retried.nak("busy")
    queue.send("held", delay_seconds=13)
    assert queue.peek() == []


def test_a_peek_knows_what_became_due_meanwhile(queue: Queue, clock: Clock) -> None:
    queue.send("retried")
    take(queue).nak("busy", delay_seconds=19)
    clock.advance(seconds=20)
    assert payloads(queue.peek()) == ["retried"]


def test_every_group_peeks_for_itself(queue: Queue) -> None:
    queue.send_many([1, 2])
    queue.receive(limit=2)
    assert queue.peek() == []
    assert payloads(queue.peek(group="billing")) == [1, 2]


def test_a_peek_makes_no_group(queue: Queue) -> None:
    queue.send(1)
    queue.peek(group="billing")
    assert queue.groups() == ["default"]


@pytest.mark.parametrize("options", [{"limit": 0}, {"limit": 1.5}, {"group": ""}], ids=str)
def test_bad_input_is_refused(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        queue.peek(**options)
