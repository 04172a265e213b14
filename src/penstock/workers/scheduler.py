"""Schedules on time: the sweep that fires them is woken for their ticks.

A tick is fired by the transaction that moves the schedule on, by the engine's own clock. So it is fired once however
many processes are woken for it, and however much their own clocks differ.
"""

from __future__ import annotations

from penstock.domain.times import SECOND, from_time
from penstock.engines.contract import Engine

# Whoever comes first at a tick sweeps; those who come within this time need not.
TICK_SECONDS = 0.2
# Never sooner than this: a tick that is due again and again must not turn into a spin.
SHORTEST_SECONDS = 0.05


class Scheduler:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def claim_seconds(self, otherwise: float) -> float:
        """How long ago the last sweep must have been for another one to be right: a tick that has come is worth one of
        its own."""
        return min(TICK_SECONDS, otherwise) if self._seconds_to_tick() <= 0 else otherwise

    def next_in(self, at_most: float) -> float:
        return max(SHORTEST_SECONDS, min(at_most, self._seconds_to_tick()))

    def _seconds_to_tick(self) -> float:
        ticks = [schedule.next_at for schedule in self._engine.schedules() if schedule.next_at is not None]
        if not ticks:
            return float("inf")
        return (from_time("next_at", min(ticks)) - self._engine.now()) / SECOND
