"""Processes killed at the worst moments lose nothing and leave nothing half done."""

from __future__ import annotations

import random
import time

import pytest

import penstock
from tests.faults.checker import check
from tests.faults.processes import END_SECONDS, Processes, await_ready, drain, dump, read_history

# A machine with much else to do may let the first ones do nothing before they are killed.
MOST_KILLS = 60
VANISHING = ["vanish-after-receive", "vanish-while-settling", "vanish-while-sweeping", "vanish-after-send"]


def test_every_send_that_returned_survives_its_sender(processes: Processes) -> None:
    dice = random.Random(processes.seed)
    while processes.kills < 6 or (processes.kills < MOST_KILLS and count(processes, "send", "ok") <= 20):
        sender = processes.start("sender")
        await_ready(sender)
        time.sleep(dice.uniform(0.02, 0.3))
        processes.kill(sender)
    assert count(processes, "send", "ok") > 20, "unknown: hardly anything was sent before the kills"
    judge(processes)


@pytest.mark.parametrize("role", VANISHING)
def test_a_process_that_vanishes_is_made_up_for(processes: Processes, role: str) -> None:
    with penstock.connect(processes.url) as store:
        store.queue("work").send_many([f"plain-{number}".encode() for number in range(30)])
    for _ in range(3):
        vanishing = processes.start(role)
        vanishing.wait(END_SECONDS)
        assert vanishing.returncode == -9, "it should have killed itself"
    judge(processes, sent_before=[f"plain-{number}" for number in range(30)])


def test_consumers_killed_at_random_leave_work_that_others_finish(processes: Processes) -> None:
    dice = random.Random(processes.seed)
    sender = processes.start("sender")
    await_ready(sender)
    while processes.kills < 10 or (processes.kills < MOST_KILLS and count(processes, "delivery", "ok") <= 10):
        consumer, sweeper = processes.start("consumer"), processes.start("sweeper")
        await_ready(consumer)
        await_ready(sweeper)
        time.sleep(dice.uniform(0.05, 0.4))
        processes.kill(consumer)
        processes.kill(sweeper)
    processes.finish_all()
    assert count(processes, "delivery", "ok") > 10, "unknown: the consumers got hardly anything"
    judge(processes)


def judge(processes: Processes, sent_before: list[str] | None = None) -> None:
    """Start the batches that killed senders left open, drain the rest, and check every law a history can show."""
    history = read_history(processes, "work")
    if sent_before:
        history.insert(0, {"op": "send", "type": "invoke", "payloads": sent_before, "t": 0, "process": "test", "n": 0})
    with penstock.connect(processes.url) as store:
        for batch in store.queue("work").batches():
            store.queue("work").batch(batch.name).start()
        drain(store, "work", ("default",))
        violations = check(history, dump(store, "work"))
    assert not violations, "\n".join(f"{one.invariant} {one.text}" for one in violations[:20])


def count(processes: Processes, op: str, type: str) -> int:
    return sum(step["op"] == op and step["type"] == type for step in read_history(processes, "work"))
