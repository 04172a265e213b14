"""Messages that were received and wait for a slot, best priority first. Slots take from it without a lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from penstock.workers.take import AnyHeld

# One message; or several that must be handled one after the other, because a shard of an ordered queue is in order.
Item = AnyHeld | list[AnyHeld]


class Ready:
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

    def drain(self) -> list[AnyHeld]:
        every: list[AnyHeld] = []
        while (item := self.pop()) is not None:
            every += item if isinstance(item, list) else [item]
        return every

    def remove(self, positions: set[int]) -> None:
        """Take out what was lost."""
        for item in self._popped():
            kept = [one for one in _members(item) if one.position not in positions]
            if kept:
                self._lane(priority_of(item)).append(kept if isinstance(item, list) else kept[0])

    def _popped(self) -> list[Item]:
        every: list[Item] = []
        while (item := self.pop()) is not None:
            every.append(item)
        return every

    def _lane(self, priority: int) -> deque[Item]:
        for known, lane in self._lanes:
            if known == priority:
                return lane
        made: deque[Item] = deque()
        self._lanes = tuple(sorted([*self._lanes, (priority, made)], key=lambda one: one[0]))
        return made


def priority_of(item: Item) -> int:
    return item[0].priority if isinstance(item, list) else item.priority


def _members(item: Item) -> Iterable[AnyHeld]:
    return item if isinstance(item, list) else [item]
