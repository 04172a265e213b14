"""How far everybody is: numbers in a small file that all processes, Python or not, have open at once. Each writes only
its own slot, so nobody waits for anybody."""

from __future__ import annotations

import mmap
from pathlib import Path

SLOTS = 16
# The first slot is the stop flag, then come the senders, then the receivers.
STOP, FIRST_SENDER, FIRST_TAKER = 0, 1, 8
SLOT_BYTES = 8


class Tally:
    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.exists():
            path.write_bytes(bytes(SLOTS * SLOT_BYTES))
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._slots = memoryview(self._map).cast("Q")

    def add(self, slot: int, count: int) -> None:
        self._slots[slot] += count

    def stop(self) -> None:
        self._slots[STOP] = 1

    @property
    def is_over(self) -> bool:
        return bool(self._slots[STOP])

    @property
    def sent(self) -> int:
        return sum(self._slots[FIRST_SENDER:FIRST_TAKER])

    @property
    def taken(self) -> int:
        return sum(self._slots[FIRST_TAKER:])
