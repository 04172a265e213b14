"""Processes killed at the worst moments lose nothing and leave nothing half done. The checker of `penstock chaos`
judges what they recorded."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import penstock
from penstock.chaos import history
from penstock.chaos.checker import check
from penstock.chaos.drain import Drain
from penstock.chaos.history import Recorder
from penstock.chaos.plan import QUEUES as PLANS
from penstock.chaos.plan import ActorPlan
from penstock.chaos.ports.python import PythonPort
from tests.conformance.engines import ENGINES, MARIADB
from tests.faults.actor import QUEUES, Vanishing
from tests.faults.processes import END_SECONDS, Processes, await_ready

# On a machine with much else to do these may be killed before they have done anything. Later ones have done something.
EARLY_KILLS = 3
PATIENCE_SECONDS = 60
VANISHING = ["vanish-after-receive", "vanish-while-settling", "vanish-while-sweeping", "vanish-after-send"]
WORK = next(plan for plan in PLANS if plan.kind == "work")


@pytest.fixture(params=(*ENGINES, MARIADB), ids=lambda row: row.name)
def processes(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> Iterator[Processes]:
    with Processes(tmp_path, seed, request.param) as processes:
        with penstock.connect(processes.url) as store:
            queue = store.queue("work", **WORK.policy)
            for group in WORK.groups:
                queue.receive(group=group)
        Recorder(processes.histories, "test").note("queue", **WORK.event("work"))
        yield processes


def test_every_send_that_returned_survives_its_sender(processes: Processes) -> None:
    dice = random.Random(processes.seed)
    while processes.kills < 6 or sends(processes) <= 20:
        before = sends(processes)
        sender = processes.start("sender")
        await_ready(sender)
        if processes.kills >= EARLY_KILLS:
            await_more(sends, processes, before)
        time.sleep(dice.uniform(0.02, 0.3))
        processes.kill(sender)
    judge(processes)


def test_a_process_that_vanishes_is_made_up_for(processes: Processes) -> None:
    """In any part of its work. One test, because the judge waits for the last leases."""
    with penstock.connect(processes.url) as store:
        plan = ActorPlan("client", "first", str(processes.histories), 1, processes.url, QUEUES)
        client = Vanishing(plan, Recorder(processes.histories, "first"), PythonPort(store), 0)
        for role in VANISHING:
            for _ in range(15):
                client.send()
            for _ in range(3):
                vanishing = processes.start(role)
                vanishing.wait(END_SECONDS)
                assert vanishing.returncode == -9, f"it should have killed itself:\n{processes.said(vanishing)}"
    judge(processes)


def test_consumers_killed_at_random_leave_work_that_others_finish(processes: Processes) -> None:
    dice = random.Random(processes.seed)
    sender = processes.start("sender")
    await_ready(sender)
    while processes.kills < 10 or deliveries(processes) <= 10:
        before = deliveries(processes)
        consumer, sweeper = processes.start("consumer"), processes.start("sweeper")
        await_ready(consumer)
        await_ready(sweeper)
        if processes.kills >= EARLY_KILLS:
            await_more(deliveries, processes, before)
        time.sleep(dice.uniform(0.05, 0.4))
        processes.kill(consumer)
        processes.kill(sweeper)
    processes.finish_all()
    judge(processes)


def judge(processes: Processes) -> None:
    """Drain the queue, and check every law on the history."""
    with penstock.connect(processes.url) as store:
        drain = Drain(store, Recorder(processes.histories, "drain"), QUEUES)
        drain.run()
        drain.read_audits(history.read(processes.histories), processes.seed)
        assert all(one.level != "error" for one in store.doctor())
    violations = check(history.read(processes.histories))
    assert not violations, "\n".join(f"{one.law}: {one.text}" for one in violations[:20])


def await_more(count: Callable[[Processes], int], processes: Processes, before: int) -> None:
    ends = time.monotonic() + PATIENCE_SECONDS
    while count(processes) <= before:
        assert time.monotonic() < ends, f"no more {count.__name__} than {before} in {PATIENCE_SECONDS} s"
        time.sleep(0.02)


def sends(processes: Processes) -> int:
    return sum(event["op"] == "send" and event["type"] == "ok" for event in history.read(processes.histories))


def deliveries(processes: Processes) -> int:
    return sum(len(event.get("taken", ())) for event in history.read(processes.histories))
