"""`python -m bench.postgres.role CONTENDER send|take URL TALLY SLOT BATCH MOST`: one producing or consuming process."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from bench.postgres.contenders import CONTENDERS, Session
from bench.postgres.tally import Tally

REST_SECONDS = 0.002
LOOK_AGAIN_SECONDS = 0.001


def main() -> None:
    name, role, url, path, slot, batch, most_waiting = sys.argv[1:]
    tally = Tally(Path(path))
    session = CONTENDERS[name].open(url)
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


if __name__ == "__main__":
    main()
