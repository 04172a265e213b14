"""Keys of ordered queues whose messages have priorities: planted disorders, and what only looks like one."""

from __future__ import annotations

import pytest

from penstock.chaos.checker import check
from tests.chaos.histories import Script


@pytest.fixture
def script() -> Script:
    """A worse priority is sent before a better one of the same key."""
    script = Script()
    script.queue("ordered", ordered=True)
    script.send(6, "worse", queue="ordered", key="k", priority=1)
    script.send(6.1, "better", queue="ordered", key="k")
    return script


def found(script: Script) -> list[str]:
    return [one.law for one in check(script.sorted()) if one.law.startswith("order")]


def test_a_better_priority_may_come_first(script: Script) -> None:
    script.receive(7, ("better", 9, 1), queue="ordered")
    script.settle(7.1, "better", 9, queue="ordered", state="succeeded")
    script.receive(7.2, ("worse", 10, 1), queue="ordered")
    assert found(script) == []


def test_a_better_priority_that_overtakes_a_retry_is_found(script: Script) -> None:
    script.receive(7, ("worse", 9, 1), queue="ordered")
    script.settle(7.1, "worse", 9, "nak", queue="ordered", state="held")
    script.receive(7.2, ("better", 10, 1), queue="ordered")
    script.settle(7.3, "better", 10, queue="ordered", state="succeeded")
    script.receive(8, ("worse", 11, 2), queue="ordered")
    assert found(script) == ["order: a key is processed in order"]


def test_a_worse_priority_that_overtakes_a_retry_is_found(script: Script) -> None:
    script.receive(7, ("better", 9, 1), ("worse", 9, 1), queue="ordered")
    script.settle(7.1, "better", 9, "nak", queue="ordered", state="held")
    script.settle(7.2, "worse", 9, queue="ordered", state="succeeded")
    script.receive(8, ("better", 11, 2), queue="ordered")
    assert found(script) == ["order: a key is processed in order"]


def test_a_worse_priority_that_is_leased_beside_a_better_one_is_found(script: Script) -> None:
    script.receive(7, ("better", 9, 1), queue="ordered")
    script.receive(7.5, ("worse", 10, 1), queue="ordered", by="c2")
    assert found(script) == ["order: a key has one lease at a time"]


def test_a_crash_may_forget_what_was_handed_out_first(script: Script) -> None:
    script.receive(7, ("worse", 9, 1), queue="ordered")
    script.note("crash", 7.1)
    script.receive(7.2, ("better", 10, 1), queue="ordered")
    script.settle(7.3, "better", 10, queue="ordered", state="succeeded")
    script.receive(8, ("worse", 11, 1), queue="ordered")
    assert found(script) == []


def test_of_a_late_reply_nobody_knows_when_it_was_handed_out(script: Script) -> None:
    late = script.begin_receive(7, by="c2", queue="ordered")
    script.receive(8.1, ("better", 10, 1), queue="ordered")
    script.end_receive(8.2, late, ("worse", 9, 1), by="c2")
    script.receive(9.2, ("better", 12, 2), queue="ordered")
    assert found(script) == []
