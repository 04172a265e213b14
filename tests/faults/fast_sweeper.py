"""A process that sweeps on a clock sixty times too fast: `python -m tests.faults.fast_sweeper URL SINCE`."""

from __future__ import annotations

import sys
import time

import penstock
from tests.faults.actor import told_to_stop

SPEED = 60


def fast_time(since: int) -> int:
    return since + (time.time_ns() // 1000 - since) * SPEED


def main(url: str, since: str) -> None:
    with penstock.connect(url, clock=lambda: fast_time(int(since))) as store:
        print("ready", flush=True)
        while not told_to_stop(0.005):
            store.sweep()


if __name__ == "__main__":
    main(*sys.argv[1:])
