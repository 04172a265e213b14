"""Backoff while the store is unavailable: exponential with jitter, logged at intervals."""

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
# Interval of the reminders in the log during a long outage.
REMINDER_SECONDS = 30.0
# Errors that are retried. Other errors of a store need an operator and a restart.
TRANSIENT = (StoreUnavailable, StoreFull)


class Backoff:
    """The state of one operation that is retried until it succeeds."""

    def __init__(self, operation: str) -> None:
        self._operation = operation
        self._failed_at: float | None = None
        self._logged_at = 0.0
        self._seconds = FIRST_SECONDS

    def failed(self, error: StoreError) -> float:
        """Log the error and return the seconds to wait before the next attempt."""
        now = time.monotonic()
        if self._failed_at is None:
            self._failed_at = now
        if now - self._logged_at >= REMINDER_SECONDS:
            self._logged_at = now
            logger.warning("%s: %s; trying again until it works", self._operation, error)
        seconds = self._seconds
        self._seconds = min(LONGEST_SECONDS, seconds * 2)
        return seconds * random.uniform(0.8, 1.2)

    def succeeded(self) -> None:
        if self._failed_at is not None:
            logger.warning("%s works again after %.1f s", self._operation, time.monotonic() - self._failed_at)
            self._failed_at, self._logged_at, self._seconds = None, 0.0, FIRST_SECONDS


def call_with_backoff(operation: str, action: Callable[[], T], within_seconds: float, stop: threading.Event) -> T:
    """Retry until the action succeeds. Raises the last error after `within_seconds`, or when `stop` is set."""
    backoff = Backoff(operation)
    ends = time.monotonic() + within_seconds
    while True:
        try:
            result = action()
        except TRANSIENT as error:
            seconds = backoff.failed(error)
            if time.monotonic() + seconds > ends or stop.wait(seconds):
                raise
        else:
            backoff.succeeded()
            return result
