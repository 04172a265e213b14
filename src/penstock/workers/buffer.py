"""Messages that were received and wait for a slot, best priority first. Slots take from it without a lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from penstock.workers.lease_batch import AnyHeld, Item


class Buffer:
    """Every operation on a lane is one call of a `deque`, which is atomic: an item is taken by one thread only."""

    def __init__(self) -> None:
        self._lanes: tuple[tuple[int, deque[Item]], ...] = ()

    def __len__(self) -> int:
        lanes = self._lanes
        if len(lanes) == 1:
            return len(lanes[0][1])
        return sum(len(lane) for _, lane in lanes)

    def extend(self, items: Sequence[Item]) -> None:
        """In the order of a receive: best priority first."""
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
        """The best one, or the oldest of a priority; None when there is none."""
        for lane_priority, lane in self._lanes:
            if lane and priority in (None, lane_priority):
                try:
                    return lane.popleft()
                except IndexError:  # another slot was faster
                    continue
        return None

    def remove(self, item: Item) -> bool:
        """Take out this one; False when a slot has it."""
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


def emptied(shard: deque[AnyHeld]) -> list[AnyHeld]:
    """What was left of a shard, in order; from the right, so that a slot may go on at the left meanwhile."""
    rest: list[AnyHeld] = []
    while True:
        try:
            rest.append(shard.pop())
        except IndexError:
            return rest[::-1]
