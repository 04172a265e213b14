"""Slots of a whole worker by priority, shared by all its queues: urgent messages always find a free slot.

`{0: 10, 5: 4}` lets ten handlers run at the same time, but starts a message of priority 5 or worse only while fewer
than four run. The limit of a priority is that of the nearest better one that is named.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from penstock.domain.errors import InvalidInput
from penstock.domain.limits import MAX_PRIORITY
from penstock.domain.validation import check_integer, shown

MAX_SLOTS = 1_000_000


class Offer(NamedTuple):
    """The calls that a queue could start now, by priority, best first; how many of its handlers run; and when it last
    got a slot."""

    priorities: list[int]
    running: int
    granted_at: int


class PrioritySlots:
    def __init__(self, slots: int | Mapping[int, int], on_free: Callable[[], None] = lambda: None) -> None:
        limits = _checked(slots)
        self._priorities = sorted(limits)
        self._limits = [limits[priority] for priority in self._priorities]
        self._lock = threading.Lock()
        self._running = 0
        self.on_free = on_free

    @property
    def most(self) -> int:
        return self._limits[0]

    @property
    def running(self) -> int:
        return self._running

    def limit(self, priority: int) -> int:
        return self._limits[max(0, bisect_right(self._priorities, priority) - 1)]

    def free(self, priority: int) -> int:
        """How many more calls of this priority may start now."""
        return max(0, self.limit(priority) - self._running)

    def grant(self, offers: Sequence[Offer], waiting: int) -> list[int]:
        """How many calls of each queue to fetch messages for, besides those that wait in the worker already. The best
        priority comes first; among equals the queue with the fewest handlers, then the one that has waited longest."""
        granted = [0] * len(offers)
        taken = self._running + waiting
        while True:
            open_offers = [place for place, offer in enumerate(offers) if granted[place] < len(offer.priorities)]
            if not open_offers:
                return granted
            best = min(open_offers, key=lambda place: _rank(offers[place], granted[place]))
            if taken >= self.limit(offers[best].priorities[granted[best]]):
                return granted  # worse priorities have no free slot either
            granted[best] += 1
            taken += 1

    def enter(self, priority: int) -> bool:
        with self._lock:
            if self._running >= self.limit(priority):
                return False
            self._running += 1
            return True

    def leave(self) -> None:
        with self._lock:
            self._running -= 1
        self.on_free()


def _rank(offer: Offer, granted: int) -> tuple[int, int, int]:
    return offer.priorities[granted], offer.running + granted, offer.granted_at


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
