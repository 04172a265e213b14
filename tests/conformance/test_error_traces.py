"""Stack traces of last errors: stored with the retry or dead letter, and removed with it."""

from __future__ import annotations

import pytest

from penstock import NotFound, Queue, State
from tests.conformance.assertions import take

TRACE = 'Traceback (most recent call last):\n  File "shop.py", line 7, in handle\nValueError: broken'


def keep(queue: Queue, position: int, trace: str = TRACE) -> None:
    queue.engine.keep_traces(queue.name, "default", [(position, trace)])


def test_a_retry_has_the_trace_of_its_last_error(queue: Queue) -> None:
    queue.send(1)
    first = take(queue)
    assert queue.explain(first.id).trace is None
    first.nak("ValueError: broken", delay_seconds=0)
    keep(queue, first.position)
    assert queue.explain(first.id).trace == TRACE
    again = take(queue)
    assert queue.explain(first.id).trace == TRACE, "while it runs again"
    again.nak("again", delay_seconds=60)
    assert queue.explain(first.id).trace is None, "an error without a trace has none of an earlier one"
    keep(queue, first.position, "another")
    assert queue.explain(first.id).trace == "another"


def test_a_dead_letter_has_it_until_it_is_redriven(queue: Queue) -> None:
    queue.send(1)
    delivery = take(queue)
    delivery.reject("broken")
    keep(queue, delivery.position)
    explanation = queue.explain(delivery.id)
    assert (explanation.state, explanation.trace) == (State.REJECTED, TRACE)
    queue.redrive()
    assert queue.explain(delivery.id).trace is None


def test_what_succeeded_has_none(queue: Queue) -> None:
    queue.send(1)
    delivery = take(queue)
    delivery.ack()
    keep(queue, delivery.position)
    assert queue.explain(delivery.id).trace is None


def test_a_running_message_keeps_nothing_new(queue: Queue) -> None:
    """Its lease was lost to another consumer, which runs it now."""
    queue.send(1)
    delivery = take(queue)
    keep(queue, delivery.position)
    assert queue.explain(delivery.id).trace is None


def test_traces_hold_any_text(queue: Queue) -> None:
    queue.send(1)
    delivery = take(queue)
    delivery.nak("broken")
    keep(queue, delivery.position, "a\0b \u00e4 {}%s")
    assert queue.explain(delivery.id).trace == "a\0b \u00e4 {}%s"


def test_an_unknown_queue_is_named(queue: Queue) -> None:
    queue.send(1)
    with pytest.raises(NotFound):
        queue.engine.keep_traces("order", "default", [(1, TRACE)])
