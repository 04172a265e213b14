"""Leases given out lately, by what their client calls the message.

A client settles by id, the store by token. Most acks come soon after the message was handed out, so the tokens of the
latest leases are kept here; any other is looked up in the store.
"""

from __future__ import annotations

from collections.abc import Sequence

# A lease: its token, and the position of its message.
Lease = tuple[int, int]
Reader = tuple[str, str]
# About 250 bytes each; twice as many are kept at most.
MOST_YOUNG = 50_000


class Remembered:
    """Two generations: when the younger one is full it becomes the older one, and that is forgotten as a whole."""

    def __init__(self, most: int = MOST_YOUNG) -> None:
        self._most = most
        self._young: dict[Reader, dict[bytes, Lease]] = {}
        self._old: dict[Reader, dict[bytes, Lease]] = {}
        self._count = 0

    def put(self, queue: str, group: str, leases: dict[bytes, Lease]) -> None:
        if not leases:
            return
        known = self._young.get((queue, group))
        if known is None:
            self._young[queue, group] = leases
        else:
            known.update(leases)
        self._count += len(leases)
        if self._count > self._most:
            self._old, self._young, self._count = self._young, {}, 0

    def take(self, queue: str, group: str, names: Sequence[bytes]) -> list[Lease | None]:
        """The lease of each, which is forgotten: it is settled once."""
        young = self._young.get((queue, group)) or {}
        found = [young.pop(name, None) for name in names]
        old = self._old.get((queue, group))
        if old and None in found:
            return [old.pop(name, None) if lease is None else lease for name, lease in zip(names, found, strict=True)]
        return found

    def __len__(self) -> int:
        return sum(len(leases) for part in (self._young, self._old) for leases in part.values())
