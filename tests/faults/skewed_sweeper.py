"""A process that sweeps as workers do, on a fast clock with an offset: `python -m tests.faults.skewed_sweeper URL SINCE
OFFSET`."""

from __future__ import annotations

import sys

import penstock
from penstock.workers.sweeper import Sweeper
from tests.faults.actor import told_to_stop
from tests.faults.fast_sweeper import fast_time


def main(url: str, since: str, skew: str) -> None:
    with penstock.connect(url, clock=lambda: fast_time(int(since)) + int(skew)) as store:
        sweeper = Sweeper(store.engine, 1)
        print("ready", flush=True)
        while not told_to_stop(0.002):
            sweeper.turn()


if __name__ == "__main__":
    main(*sys.argv[1:])
