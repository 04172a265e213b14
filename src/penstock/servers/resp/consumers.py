"""Consumers of stream groups, as this server has met them.

In a stream a consumer is a name that has read or was made, even if it holds nothing. The store knows who holds
something; who only came by is known to the server it came to, until that ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable

# Names kept; those met longest ago are forgotten first.
MOST_KEPT = 100_000


class Consumers:
    def __init__(self, clock: Callable[[], float] = time.time, most: int = MOST_KEPT) -> None:
        self._clock = clock
        self._most = most
        self._met: dict[tuple[str, str, str], float] = {}

    def meet(self, queue: str, group: str, name: str) -> bool:
        """Note that it is here now; whether it was not known before."""
        key = (queue, group, name)
        is_new = self._met.pop(key, None) is None
        self._met[key] = self._clock()
        if len(self._met) > self._most:
            del self._met[next(iter(self._met))]
        return is_new

    def leave(self, queue: str, group: str, name: str) -> None:
        self._met.pop((queue, group, name), None)

    def forget(self, queue: str, group: str) -> None:
        """The group is gone, and its consumers with it."""
        for key in [key for key in self._met if key[:2] == (queue, group)]:
            del self._met[key]

    def of(self, queue: str, group: str) -> dict[str, float]:
        """When each of a group was last here."""
        return {key[2]: at for key, at in self._met.items() if key[:2] == (queue, group)}
