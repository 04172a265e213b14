"""Guessing passwords is slow: after a few failures from an address, more are refused for a while."""

from __future__ import annotations

import time
from collections import deque

from penstock.servers.resp.words import CommandError

WINDOW_SECONDS = 1.0
# Addresses remembered; the oldest are forgotten first.
MAX_ADDRESSES = 10_000


class Guard:
    def __init__(self, failures_per_second: int) -> None:
        self._allowed = failures_per_second
        self._failures: dict[str, deque[float]] = {}

    def check(self, address: str) -> None:
        failures = self._failures.get(address)
        if failures is None:
            return
        while failures and failures[0] < time.monotonic() - WINDOW_SECONDS:
            failures.popleft()
        if len(failures) >= self._allowed:
            raise CommandError("ERR too many failed attempts to authenticate from this address: try again in a second")

    def note_failure(self, address: str) -> None:
        failures = self._failures.setdefault(address, deque(maxlen=self._allowed))
        failures.append(time.monotonic())
        while len(self._failures) > MAX_ADDRESSES:
            del self._failures[next(iter(self._failures))]
