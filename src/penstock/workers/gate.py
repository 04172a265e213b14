"""Slots of a whole worker, by priority: urgent work always finds room.

`{0: 10, 5: 4}` lets ten handlers run at the same time, but starts a message of priority 5 or worse only while fewer
than four run. The limit of a priority is that of the nearest better one that is named.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping
from itertools import pairwise

from penstock.domain.errors import InvalidInput
from penstock.domain.message import MAX_PRIORITY
from penstock.domain.names import shown
from penstock.domain.times import check_integer

MAX_SLOTS = 1_000_000


class Gate:
    def __init__(self, slots: int | Mapping[int, int], on_change: Callable[[], None] = lambda: None) -> None:
        limits = _checked(slots)
        self._priorities = sorted(limits)
        self._limits = [limits[priority] for priority in self._priorities]
        self._lock = threading.Lock()
        self._running = 0
        self.on_change = on_change
        self.waiting: Callable[[], int] = lambda: 0

    @property
    def most(self) -> int:
        return self._limits[0]

    def limit(self, priority: int) -> int:
        return self._limits[max(0, bisect_right(self._priorities, priority) - 1)]

    def free(self, priority: int) -> int:
        """How many more of this priority may start now."""
        return max(0, self.limit(priority) - self._running)

    def room(self) -> int:
        """How many more of the best priority may be received: those that wait for a slot already will need one."""
        return max(0, self.most - self._running - self.waiting())

    def is_tight(self, room: int) -> bool:
        """Whether fewer than `room` of the worst priority may be received."""
        return self._limits[-1] - self._running - self.waiting() < room

    def fitting(self, priorities: list[int]) -> int:
        """How many of the next messages may be received, one after the other."""
        taken = self._running + self.waiting()
        for count, priority in enumerate(priorities):
            if taken + count >= self.limit(priority):
                return count
        return len(priorities)

    def enter(self, priority: int) -> bool:
        with self._lock:
            if self._running >= self.limit(priority):
                return False
            self._running += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._running -= 1
        self.on_change()


def _checked(slots: object) -> dict[int, int]:
    if isinstance(slots, int) and not isinstance(slots, bool):
        return {0: check_integer("slots", slots, 1, MAX_SLOTS)}
    if not isinstance(slots, Mapping) or not slots:
        raise InvalidInput(
            f"slots must be a number, or map priorities to numbers such as {{0: 10, 5: 4}}, not {shown(slots)}"
        )
    limits = {
        check_integer("priority in slots", priority, 0, MAX_PRIORITY): check_integer("slots", limit, 1, MAX_SLOTS)
        for priority, limit in slots.items()
    }
    ordered = sorted(limits)
    for better, worse in pairwise(ordered):
        if limits[worse] > limits[better]:
            raise InvalidInput(
                f"slots give priority {worse} more room ({limits[worse]}) than priority {better} ({limits[better]}): "
                "urgent work must never find less"
            )
    return limits
