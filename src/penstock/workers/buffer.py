"""Received messages that wait for a slot, best priority first. Slots pop from it without a lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.workers.lease_batch import AnyDelivery, Item


class Buffer:
    """Every operation on a lane is one call of a `deque`, which is atomic: only one thread gets an item."""

    def __init__(self) -> None:
        self._lanes: tuple[tuple[int, deque[Item]], ...] = ()

    def __len__(self) -> int:
        lanes = self._lanes
        if len(lanes) == 1:
            return len(lanes[0][1])
        return sum(len(lane) for _, lane in lanes)

    def extend(self, items: Sequence[Item]) -> None:
        """Add items in the order of a receive, best priority first."""
        if not items:
            return
        first, last = priority_of(items[0]), priority_of(items[-1])
        if first == last:
            self._lane(first).extend(items)
            return
        for item in items:
            self._lane(priority_of(item)).append(item)

    def priorities(self) -> list[int]:
        return [priority for priority, lane in self._lanes if lane]

    def pop(self, priority: int | None = None) -> Item | None:
        """The first item of the best priority, or of the given one; None when there is none."""
        for lane_priority, lane in self._lanes:
            if lane and priority in (None, lane_priority):
                try:
                    return lane.popleft()
                except IndexError:  # another slot was faster
                    continue
        return None

    def remove(self, item: Item) -> bool:
        """Remove an item; returns False when a slot has taken it."""
        for _, lane in self._lanes:
            try:
                lane.remove(item)
            except ValueError:
                continue
            return True
        return False

    def _lane(self, priority: int) -> deque[Item]:
        for known, lane in self._lanes:
            if known == priority:
                return lane
        made: deque[Item] = deque()
        self._lanes = tuple(sorted([*self._lanes, (priority, made)], key=lambda one: one[0]))
        return made


def priority_of(item: Item) -> int:
    return item[0].priority if isinstance(item, deque) else item.priority


def emptied(shard: deque[AnyDelivery]) -> list[AnyDelivery]:
    """Empty a shard and return what was left, in order. Pops from the right, because a slot pops from the left."""
    rest: list[AnyDelivery] = []
    while True:
        try:
            rest.append(shard.pop())
        except IndexError:
            return rest[::-1]
