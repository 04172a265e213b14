"""The periodic sweep. Every worker and server tries to claim it, and one of them runs it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from penstock.domain.errors import PenstockError
from penstock.engines.contract import Engine
from penstock.workers.scheduler import Scheduler

logger = logging.getLogger("penstock.sweep")
# A claim may come this much early without counting as a second sweep.
TOLERANCE = 0.9
# Longest pause after repeated failures (store unavailable, missing permission).
LONGEST_PAUSE_SECONDS = 60.0


class Sweeper:
    """One per process. However many there are, the store is swept once in `every_seconds`, and when a schedule is
    due."""

    def __init__(self, engine: Engine, every_seconds: float, chance: Callable[[], float] = random.random) -> None:
        self._engine = engine
        self._every_seconds = every_seconds
        self._chance = chance
        self._scheduler = Scheduler(engine)
        self._failures = 0

    def turn(self) -> float:
        """Sweep unless another process has just done so; returns the seconds until the next turn. Errors are logged."""
        pause = self._every_seconds * (0.8 + 0.4 * self._chance())
        try:
            minimum_age = self._scheduler.claim_seconds(self._every_seconds * TOLERANCE)
            if self._engine.claim_sweep(minimum_age):
                self._engine.sweep()
            self._failures = 0
            return min(pause, self._scheduler.next_in(pause))
        except PenstockError as error:
            logger.warning("sweep: %s", error)
            self._failures += 1
            return min(pause * 2.0 ** min(self._failures, 16), max(pause, LONGEST_PAUSE_SECONDS))
