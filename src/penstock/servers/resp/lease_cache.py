"""A cache of recent leases, by message id.

A client settles by id, the store by token. Most acks come soon after the delivery, so the tokens of recent leases are
cached; others are looked up in the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Kept = TypeVar("Kept")
Reader = tuple[str, str]
# Size of a generation; a lease takes about 250 bytes.
MAX_YOUNG = 50_000


class LeaseCache(Generic[Kept]):
    """Two generations: when the younger one is full it becomes the older one, which is dropped as a whole. Entries put
    in after `known_since` were not dropped."""

    def __init__(self, most: int = MAX_YOUNG, clock: Callable[[], float] = time.time) -> None:
        self._most = most
        self._clock = clock
        self._young: dict[Reader, dict[bytes, Kept]] = {}
        self._old: dict[Reader, dict[bytes, Kept]] = {}
        self._count = 0
        self.known_since = self._turned_at = clock()

    def put(self, queue: str, group: str, leases: dict[bytes, Kept]) -> None:
        if not leases:
            return
        known = self._young.get((queue, group))
        if known is None:
            self._young[queue, group] = leases
        else:
            known.update(leases)
        self._count += len(leases)
        if self._count > self._most:
            self.known_since, self._turned_at = self._turned_at, self._clock()
            self._old, self._young, self._count = self._young, {}, 0

    def get(self, queue: str, group: str, name: bytes) -> Kept | None:
        return self.find(queue, group, [name])[0]

    def find(self, queue: str, group: str, names: Sequence[bytes]) -> list[Kept | None]:
        """The lease of each."""
        young, old = self._young.get((queue, group), {}), self._old.get((queue, group))
        found = list(map(young.get, names))
        if old and None in found:
            return [old.get(name) if lease is None else lease for name, lease in zip(names, found, strict=True)]
        return found

    def remove(self, queue: str, group: str, leases: dict[bytes, Kept]) -> None:
        """Remove these leases, but not newer ones of their messages."""
        for part in (self._young, self._old):
            kept = part.get((queue, group))
            if kept:
                for name, lease in leases.items():
                    if kept.get(name) is lease:
                        del kept[name]

    def take(self, queue: str, group: str, names: Sequence[bytes]) -> list[Kept | None]:
        """Remove and return the lease of each, because a lease is settled once."""
        young = self._young.get((queue, group)) or {}
        found = [young.pop(name, None) for name in names]
        old = self._old.get((queue, group))
        if old and None in found:
            return [old.pop(name, None) if lease is None else lease for name, lease in zip(names, found, strict=True)]
        return found

    def __len__(self) -> int:
        return sum(len(leases) for part in (self._young, self._old) for leases in part.values())
