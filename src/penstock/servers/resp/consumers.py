"""Consumers of stream groups that this server has seen.

In a stream a consumer is a name that has read or was created, even without pending entries. The store knows consumers
with pending entries; the others are known to the server that they used, until it restarts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

# Names kept; the least recently seen are dropped first.
MAX_KEPT = 100_000


class ConsumerActivity(NamedTuple):
    """When a consumer was last seen, and when it last received an entry."""

    seen_at: float
    active_at: float | None


class GroupConsumers:
    def __init__(self, clock: Callable[[], float] = time.time, most: int = MAX_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._met: dict[tuple[str, str, str], ConsumerActivity] = {}

    def note_seen(self, queue: str, group: str, name: str) -> bool:
        """Record that it was seen now, and return whether it is new."""
        before = self._met.pop((queue, group, name), None)
        self._put(queue, group, name, None if before is None else before.active_at)
        return before is None

    def note_active(self, queue: str, group: str, names: Iterable[str]) -> None:
        """Record that consumers received entries."""
        for name in names:
            self._met.pop((queue, group, name), None)
            self._put(queue, group, name, self._clock())

    def _put(self, queue: str, group: str, name: str, active_at: float | None) -> None:
        self._met[queue, group, name] = ConsumerActivity(self._clock(), active_at)
        if len(self._met) > self._most:
            del self._met[next(iter(self._met))]

    def leave(self, queue: str, group: str, name: str) -> None:
        self._met.pop((queue, group, name), None)

    def forget(self, queue: str, group: str) -> None:
        """Drop the consumers of a removed group."""
        for key in [key for key in self._met if key[:2] == (queue, group)]:
            del self._met[key]

    def of(self, queue: str, group: str) -> dict[str, ConsumerActivity]:
        """The consumers of a group."""
        return {key[2]: met for key, met in self._met.items() if key[:2] == (queue, group)}
