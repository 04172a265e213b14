"""Sweeps: one for all processes, and schedules on time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.testing import Clock
from penstock.workers.sweeper import Sweeper
from tests.conformance.engines import ENGINES
from tests.faults.fast_sweeper import fast_time
from tests.faults.processes import Processes, await_ready
from tests.workers.conftest import await_until


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def timed(tmp_path: Path, clock: Clock) -> Iterator[penstock.Store]:
    with penstock.connect(f"sqlite:///{tmp_path}/timed.db", clock=clock) as store:
        yield store


class Counting:
    """An engine that counts its real sweeps."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.sweeps = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def sweep(self) -> Any:
        self.sweeps += 1
        return self._engine.sweep()


def test_a_sweep_is_claimed_by_one_and_again_when_its_time_has_come(store: penstock.Store) -> None:
    assert store.engine.claim_sweep(0), "whoever swept before, its time has come"
    assert not store.engine.claim_sweep(60)
    time.sleep(0.02)
    assert store.engine.claim_sweep(0.01)


def test_one_of_many_processes_sweeps(timed: penstock.Store, clock: Clock) -> None:
    engines = [Counting(timed.engine) for _ in range(10)]
    sweepers = [Sweeper(engine, 1, lambda: 0.5) for engine in engines]
    for _ in range(30):
        for sweeper in sweepers:
            sweeper.turn()
        clock.advance(seconds=1)
    assert sum(engine.sweeps for engine in engines) == 30


def test_a_clock_that_was_set_back_does_not_stop_the_sweeps(timed: penstock.Store, clock: Clock) -> None:
    assert timed.engine.claim_sweep(1)
    clock.advance(hours=-2)
    assert timed.engine.claim_sweep(1)


def test_a_sweeper_wakes_for_the_next_tick(timed: penstock.Store, clock: Clock) -> None:
    timed.schedule("minutely", "* * * * *", "ticks", b"tick")
    sweeper = Sweeper(timed.engine, 1, lambda: 0.5)
    clock.move_to(clock.now.replace(second=59, microsecond=700_000))
    assert sweeper.turn() == pytest.approx(0.3)
    clock.advance(seconds=0.3)
    sweeper.turn()
    assert len(timed.queue("ticks").receive(limit=10)) == 1


def test_a_worker_sweeps_while_it_runs(store: penstock.Store, start: Any) -> None:
    """A dead consumer of another queue is removed, although nobody receives there."""
    other = store.queue("other")
    other.send(b"x")
    other.register("silent", heartbeat_seconds=0.1)
    (held,) = other.receive(consumer="silent", lease_seconds=600)
    start({"work": lambda delivery: None}, sweep_seconds=0.1)
    await_until(lambda: other.stats("default").redo == 1)
    with pytest.raises(penstock.LeaseLost):
        held.ack()


def test_workers_that_do_not_sweep_leave_it_to_others(store: penstock.Store, start: Any) -> None:
    store.queue("other").register("silent", heartbeat_seconds=0.05)
    start({"work": lambda delivery: None}, sweep_seconds=None)
    seen: list[str] = []
    start({"done": lambda delivery: seen.append(delivery.id)}, sweep_seconds=None)
    time.sleep(0.3)
    store.queue("done").send(b"x")
    await_until(lambda: len(seen) == 1)
    assert "silent" in [one.name for one in store.consumers()]


def test_every_tick_is_sent_once_by_nodes_whose_clocks_differ(tmp_path: Path) -> None:
    """Three processes whose clocks run sixty times too fast and differ by up to forty of their seconds."""
    with Processes(tmp_path, 1, ENGINES[0]) as processes:
        since = time.time_ns() // 1000
        with penstock.connect(processes.url, clock=lambda: fast_time(since)) as store:
            first = store.schedule("fast", "* * * * *", "ticks", b"tick", catch_up="all").next_at
        skews = (-20_000_000, 0, 20_000_000)
        sweeper = ("tests.faults.skewed_sweeper", processes.url, str(since))
        for member in [processes.run(*sweeper, str(skew)) for skew in skews]:
            await_ready(member)
        threading.Event().wait(3)
        processes.finish_all()
        with penstock.connect(processes.url, clock=lambda: fast_time(since) + max(skews)) as store:
            last = store.schedules()[0].last_at
            assert first is not None
            assert last is not None
            passed = round((last - first).total_seconds() / 60) + 1
            assert passed >= 2, "unknown: hardly any tick passed"
            sent = store.queue("ticks").receive(limit=1000)
    assert len(sent) == len({delivery.headers["penstock-tick"] for delivery in sent}) == passed
