"""explain: the state of a message, why it is not running, and advice."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from penstock import NotFound, Queue, State, Store
from tests.conformance.assertions import take
from tests.conformance.clock import Clock


class Case(NamedTuple):
    act: Callable[[Queue], Any]
    state: State
    because: str


CASES = {
    "ready": Case(lambda queue: None, State.READY, ""),
    "leased": Case(lambda queue: take(queue, consumer="press 4"), State.LEASED, "press 4"),
    "waiting for a retry": Case(lambda queue: take(queue).nak("paper jam"), State.HELD, "paper jam"),
    "due for a retry": Case(lambda queue: take(queue).nak("paper jam", delay_seconds=0), State.READY, ""),
    "succeeded": Case(lambda queue: take(queue).ack(), State.SUCCEEDED, ""),
    "rejected": Case(lambda queue: take(queue).reject("no such order"), State.REJECTED, "no such order"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_message_is_explained_wherever_it_is(queue: Queue, name: str) -> None:
    case = CASES[name]
    message_id = queue.send(1)
    case.act(queue)
    explanation = queue.explain(message_id)
    assert (explanation.id, explanation.queue, explanation.group) == (message_id, "orders", "default")
    assert explanation.state is case.state
    assert explanation.because
    assert case.because in explanation.because


def test_a_delayed_message_says_it_is_not_due(queue: Queue) -> None:
    explanation = queue.explain(queue.send(1, delay_seconds=13))
    assert explanation.state is State.HELD
    assert explanation.because


def test_a_member_of_a_batch_that_has_not_started_names_the_batch(queue: Queue) -> None:
    explanation = queue.explain(queue.batch("nightly").send(1))
    assert explanation.state is State.HELD
    assert "nightly" in explanation.because
    assert explanation.advice


def test_a_message_of_a_paused_queue_says_that_it_is_paused(queue: Queue) -> None:
    message_id = queue.send(1)
    queue.pause()
    explanation = queue.explain(message_id)
    assert explanation.state is State.READY
    assert "paused" in explanation.because
    assert explanation.advice is not None
    assert "resume" in explanation.advice


def test_a_dead_letter_is_told_how_to_come_back(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).reject("no")
    advice = queue.explain(message_id).advice
    assert advice is not None
    assert "redrive" in advice


def test_a_lapsed_lease_is_explained_as_such_before_anyone_noticed(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1)
    take(queue)
    clock.advance(seconds=38)
    explanation = queue.explain(message_id)
    assert explanation.state in (State.LEASED, State.READY)
    assert "end" in explanation.because or "laps" in explanation.because


def test_every_group_has_its_own_explanation(queue: Queue) -> None:
    message_id = queue.send(1)
    take(queue).ack()
    assert queue.explain(message_id).state is State.SUCCEEDED
    other = queue.explain(message_id, group="billing")
    assert (other.group, other.state) == ("billing", State.READY)


def test_explaining_changes_nothing(queue: Queue) -> None:
    message_id = queue.send(1)
    queue.explain(message_id, group="billing")
    assert queue.groups() == ["default"]
    assert len(queue.audit(message_id)) == 1


def test_an_unknown_message_cannot_be_explained(queue: Queue, store: Store) -> None:
    unknown = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    queue.send(1)
    with pytest.raises(NotFound, match=unknown):
        queue.explain(unknown)
    with pytest.raises(NotFound):
        store.queue("unknown").explain(unknown)


def test_advice_is_a_command_that_a_shell_understands(store: Store) -> None:
    """The advice names the group, and quotes names."""
    queue = store.queue("two words; rm")
    message_id = queue.send(1)
    take(queue, group="it's mine").nak("busy", delay_seconds=0)
    advice = queue.explain(message_id, group="it's mine").advice
    assert advice is not None
    assert shlex.split(advice) == ["penstock", "receive", "two words; rm", "--group", "it's mine"]
    take(queue).reject("no")
    advice = queue.explain(message_id).advice
    assert advice is not None
    assert shlex.split(advice) == ["penstock", "redrive", "two words; rm", message_id, "--group", "default"]
