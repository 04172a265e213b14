"""The sweep, for whatever runs: workers and servers ask, and one of them does it."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from penstock.domain.errors import PenstockError
from penstock.engines.contract import Engine
from penstock.workers.scheduler import Scheduler

logger = logging.getLogger("penstock.sweep")
# Asking a little early is no second sweep.
TOLERANCE = 0.9
# Sweeps that fail one after the other (the store is away, or this user may not sweep) are tried and told less often.
LONGEST_PAUSE_SECONDS = 60.0


class Sweeper:
    """Made once in each process. However many there are, the store is swept once in `every_seconds`, and once when a
    schedule is due."""

    def __init__(self, engine: Engine, every_seconds: float, chance: Callable[[], float] = random.random) -> None:
        self._engine = engine
        self._every_seconds = every_seconds
        self._chance = chance
        self._scheduler = Scheduler(engine)
        self._failures = 0

    def turn(self) -> float:
        """Sweep unless somebody has just done it; seconds until the next turn. An error is told, and passes."""
        pause = self._every_seconds * (0.8 + 0.4 * self._chance())
        try:
            patience = self._scheduler.claim_seconds(self._every_seconds * TOLERANCE)
            if self._engine.claim_sweep(patience):
                self._engine.sweep()
            self._failures = 0
            return min(pause, self._scheduler.next_in(pause))
        except PenstockError as error:
            logger.warning("sweep: %s", error)
            self._failures += 1
            return min(pause * 2.0 ** min(self._failures, 16), max(pause, LONGEST_PAUSE_SECONDS))
