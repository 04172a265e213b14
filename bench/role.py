"""`... CONTENDER send|take URL TALLY SLOT BATCH MOST`: one producing or consuming process of a crew."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from bench.tally import Tally

REST_SECONDS = 0.002
LOOK_AGAIN_SECONDS = 0.001


class Session(Protocol):
    """One connection of one process."""

    def send(self, count: int) -> None:
        """Send this many messages, in one call if the contender can."""

    def take(self, count: int) -> int:
        """Receive up to this many and finish them; how many there were."""

    def close(self) -> None: ...


def play(opens: Mapping[str, Callable[[str], Session]]) -> None:
    name, role, url, path, slot, batch, most_waiting = sys.argv[1:]
    tally = Tally(Path(path))
    session = opens[name](url)
    try:
        if role == "send":
            send(session, tally, int(slot), int(batch), int(most_waiting))
        else:
            take(session, tally, int(slot), int(batch))
    finally:
        session.close()


def send(session: Session, tally: Tally, slot: int, batch: int, most_waiting: int) -> None:
    while not tally.is_over:
        if tally.sent - tally.taken > most_waiting:
            time.sleep(REST_SECONDS)
            continue
        session.send(batch)
        tally.add(slot, batch)


def take(session: Session, tally: Tally, slot: int, batch: int) -> None:
    while not tally.is_over:
        taken = session.take(batch)
        tally.add(slot, taken)
        if not taken:
            time.sleep(LOOK_AGAIN_SECONDS)
