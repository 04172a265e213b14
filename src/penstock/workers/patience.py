"""Waiting for a store that is away: longer and longer, never silently, never for nothing."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from penstock.domain.errors import StoreError, StoreFull, StoreUnavailable

logger = logging.getLogger("penstock.worker")
T = TypeVar("T")
FIRST_SECONDS = 0.1
LONGEST_SECONDS = 5.0
# After the first time it is said again this often, so that a log of a long outage can be read.
REMIND_SECONDS = 30.0
# These pass, or somebody makes them pass; other errors of a store need a person and a restart.
PASSING = (StoreUnavailable, StoreFull)


class Patience:
    """One for each thing that is tried again and again."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._failed_at: float | None = None
        self._said_at = 0.0
        self._seconds = FIRST_SECONDS

    def failed(self, error: StoreError) -> float:
        """Seconds to wait before the next try."""
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        if now - self._said_at >= REMIND_SECONDS:
            self._said_at = now
            logger.warning("%s: %s; trying again until it works", self._doing, error)
        seconds = self._seconds
        self._seconds = min(LONGEST_SECONDS, seconds * 2)
        return seconds * random.uniform(0.8, 1.2)

    def worked(self) -> None:
        if self._failed_at is not None:
            logger.warning("%s works again after %.1f s", self._doing, time.monotonic() - self._failed_at)
            self._failed_at, self._said_at, self._seconds = None, 0.0, FIRST_SECONDS


def patiently(doing: str, action: Callable[[], T], within_seconds: float, stop: threading.Event) -> T:
    """Do it as soon as the store is there; its last error when it is not there in time or nobody waits any more."""
    patience = Patience(doing)
    ends = time.monotonic() + within_seconds
    while True:
        try:
            result = action()
        except PASSING as error:
            seconds = patience.failed(error)
            if time.monotonic() + seconds > ends or stop.wait(seconds):
                raise
        else:
            patience.worked()
            return result
