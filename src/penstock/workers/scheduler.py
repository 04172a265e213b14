"""Wakes the sweep for the ticks of schedules.

The transaction that advances a schedule also sends its message, by the engine's clock. A tick is therefore sent once,
however many processes are woken for it and however much their clocks differ.
"""

from __future__ import annotations

from penstock.domain.timestamps import SECOND
from penstock.domain.validation import from_time
from penstock.engines.contract import Engine

# After a sweep for a tick, other processes need not sweep within this time.
TICK_SECONDS = 0.2
# Shortest pause, so that a tick that stays due does not cause a busy loop.
SHORTEST_SECONDS = 0.05


class Scheduler:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def claim_seconds(self, otherwise: float) -> float:
        """The minimum age of the last sweep for another one to be due; shorter when a tick is due."""
        return min(TICK_SECONDS, otherwise) if self._seconds_to_tick() <= 0 else otherwise

    def next_in(self, at_most: float) -> float:
        return max(SHORTEST_SECONDS, min(at_most, self._seconds_to_tick()))

    def _seconds_to_tick(self) -> float:
        ticks = [schedule.next_at for schedule in self._engine.schedules() if schedule.next_at is not None]
        if not ticks:
            return float("inf")
        return (from_time("next_at", min(ticks)) - self._engine.now()) / SECOND
