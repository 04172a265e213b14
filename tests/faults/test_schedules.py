"""A schedule sends one message for each tick, however many processes sweep and however many of them are killed."""

from __future__ import annotations

import random
import time

import penstock
from tests.faults.fast_sweeper import fast_time
from tests.faults.processes import Processes, await_ready

SECONDS = 4


def test_three_sweepers_under_kills_send_every_tick_once(processes: Processes) -> None:
    since = time.time_ns() // 1000
    with penstock.connect(processes.url, clock=lambda: fast_time(since)) as store:
        first = store.schedule("fast", "* * * * *", "ticks", b"tick", catch_up="all").next_at
    words = ("tests.faults.fast_sweeper", processes.url, str(since))
    dice = random.Random(processes.seed)
    sweepers = [processes.run(*words) for _ in range(3)]
    for sweeper in sweepers:
        await_ready(sweeper)
    ends = time.monotonic() + SECONDS
    while time.monotonic() < ends:
        time.sleep(dice.uniform(0.05, 0.3))
        place = dice.randrange(len(sweepers))
        processes.kill(sweepers[place])
        sweepers[place] = processes.run(*words)
        await_ready(sweepers[place])
    processes.finish_all()

    with penstock.connect(processes.url, clock=lambda: fast_time(since)) as store:
        last = store.schedules()[0].last_at
        assert first is not None
        assert last is not None
        passed = round((last - first).total_seconds() / 60) + 1
        assert passed >= SECONDS, "unknown: hardly any tick passed"
        sent = store.queue("ticks").receive(limit=1000)
    assert len(sent) == passed
    assert len({delivery.headers["penstock-tick"] for delivery in sent}) == passed
