"""Processes killed at the worst moments lose nothing and leave nothing half done."""

from __future__ import annotations

import random
import time

import pytest

import penstock
from tests.faults.checker import check
from tests.faults.crew import Crew, await_ready, drain, dump, read_history

# A machine with much else to do may let the first ones do nothing before they are killed.
MOST_KILLS = 60
VANISHING = ["vanish-after-receive", "vanish-while-settling", "vanish-while-sweeping", "vanish-after-send"]


def test_every_send_that_returned_survives_its_sender(crew: Crew) -> None:
    dice = random.Random(crew.seed)
    while crew.kills < 6 or (crew.kills < MOST_KILLS and count(crew, "send", "ok") <= 20):
        sender = crew.start("sender")
        await_ready(sender)
        time.sleep(dice.uniform(0.02, 0.3))
        crew.kill(sender)
    assert count(crew, "send", "ok") > 20, "unknown: hardly anything was sent before the kills"
    judge(crew)


@pytest.mark.parametrize("role", VANISHING)
def test_a_process_that_vanishes_is_made_up_for(crew: Crew, role: str) -> None:
    with penstock.connect(crew.url) as store:
        store.queue("work").send_many([f"plain-{number}".encode() for number in range(30)])
    for _ in range(3):
        vanishing = crew.start(role)
        vanishing.wait(timeout=20)
        assert vanishing.returncode == -9, "it should have killed itself"
    judge(crew, sent_before=[f"plain-{number}" for number in range(30)])


def test_consumers_killed_at_random_leave_work_that_others_finish(crew: Crew) -> None:
    dice = random.Random(crew.seed)
    sender = crew.start("sender")
    await_ready(sender)
    while crew.kills < 10 or (crew.kills < MOST_KILLS and count(crew, "delivery", "ok") <= 10):
        consumer, sweeper = crew.start("consumer"), crew.start("sweeper")
        await_ready(consumer)
        await_ready(sweeper)
        time.sleep(dice.uniform(0.05, 0.4))
        crew.kill(consumer)
        crew.kill(sweeper)
    crew.finish_all()
    assert count(crew, "delivery", "ok") > 10, "unknown: the consumers got hardly anything"
    judge(crew)


def judge(crew: Crew, sent_before: list[str] | None = None) -> None:
    """Start the batches that killed senders left open, drain the rest, and check every law a history can show."""
    history = read_history(crew, "work")
    if sent_before:
        history.insert(0, {"op": "send", "type": "invoke", "payloads": sent_before, "t": 0, "process": "test", "n": 0})
    with penstock.connect(crew.url) as store:
        for batch in store.queue("work").batches():
            store.queue("work").batch(batch.name).start()
        drain(store, "work", ("default",))
        violations = check(history, dump(store, "work"))
    assert not violations, "\n".join(f"{one.invariant} {one.text}" for one in violations[:20])


def count(crew: Crew, op: str, type: str) -> int:
    return sum(step["op"] == op and step["type"] == type for step in read_history(crew, "work"))
