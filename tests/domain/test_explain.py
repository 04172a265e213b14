"""Explanations depend only on the situation, not on the engine."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.domain.errors import NotFound
from penstock.domain.explain import Situation, explain
from penstock.domain.lifecycle import State

NOW = 1_700_000_000_000_000
LATER = NOW + 90_000_000
ID = "0190a0b0-0000-7000-8000-000000000001"


@pytest.mark.parametrize(
    ("facts", "because", "advice"),
    [
        ({"state": "held", "batch": "a b"}, "its batch 'a b' has not started", "penstock batch start orders 'a b'"),
        ({"state": "held", "until_at": NOW}, "it is due: the next receive or sweep makes it ready", None),
        ({"state": "held", "until_at": LATER}, "it is delayed until 2023-11-14T22:14:50+00:00, 90 s from now", None),
        (
            {"state": "held", "until_at": LATER, "attempt": 2, "reason": "boom"},
            "it waits for its next attempt until 2023-11-14T22:14:50+00:00, 90 s from now; its last error was: boom",
            None,
        ),
        (
            {"state": "leased", "until_at": LATER, "attempt": 3, "consumer": "c1"},
            "consumer 'c1' has it (attempt 3), with a lease for another 90 s",
            None,
        ),
        (
            {"state": "leased", "until_at": NOW, "attempt": 3, "consumer": "c1"},
            "the lease of 'c1' has ended: the next receive or sweep reclaims it",
            None,
        ),
        (
            {"has_group": False},
            "group 'mail' has never received from this queue",
            "penstock receive orders --group mail",
        ),
        (
            {"position": 8, "is_passed": True},
            "the group's cursor was moved past it by a seek",
            "penstock seek orders mail 7",
        ),
        ({"is_paused": True, "attempt": 1}, "the queue is paused", "penstock resume orders"),
        (
            {"is_blocked": True},
            "it is ready and has not been received; in its shard another message is in flight or waits for a retry",
            None,
        ),
        (
            {"attempt": 1, "lag": 4, "consumers": 1},
            "it is ready for attempt 2; 4 unread messages wait in the group",
            None,
        ),
        (
            {"lag": 4},
            "it is ready and has not been received; 4 unread messages wait in the group, and no consumer is registered",
            "penstock receive orders --group mail",
        ),
        ({"state": "succeeded"}, "it ended succeeded", None),
        (
            {"state": "failed", "reason": "boom", "is_dead_letter": True},
            "it ended failed: boom",
            f"penstock redrive orders {ID} --group mail",
        ),
    ],
)
def test_each_situation_has_its_sentence(facts: dict[str, Any], because: str, advice: str | None) -> None:
    situation = Situation(now=NOW, **{**facts, "state": State(facts.get("state", "ready"))})
    explanation = explain(situation, "orders", ID, "mail")
    assert (explanation.because, explanation.advice) == (because, advice)
    assert explanation.state is situation.state


def test_a_stream_group_has_no_state_for_single_messages() -> None:
    with pytest.raises(NotFound, match="group 'mail' is read as a stream"):
        explain(Situation(now=NOW, is_stream=True), "orders", ID, "mail")
