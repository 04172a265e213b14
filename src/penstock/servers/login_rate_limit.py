"""Rate limit of failed logins per address, against guessing of passwords."""

from __future__ import annotations

import time
from collections import deque

WINDOW_SECONDS = 1.0
# Addresses kept; the oldest are dropped first.
MAX_ADDRESSES = 10_000


class LoginRateLimit:
    def __init__(self, failures_per_second: int) -> None:
        self._allowed = failures_per_second
        self._failures: dict[str, deque[float]] = {}

    def allows(self, address: str, under_way: int = 0) -> bool:
        """Whether one more attempt is within the limit even if all in progress fail."""
        failures = self._failures.get(address, deque())
        while failures and failures[0] < time.monotonic() - WINDOW_SECONDS:
            failures.popleft()
        return len(failures) + under_way < self._allowed

    def note_failure(self, address: str) -> None:
        failures = self._failures.setdefault(address, deque(maxlen=self._allowed))
        failures.append(time.monotonic())
        while len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]
