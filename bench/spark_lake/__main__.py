"""`python -m bench.spark_lake`: finished messages per second, from the store to a published lake that verifies.

Also whether the cost of a row stays the same: the store is filled and archived several times, ever larger.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import penstock
from penstock.spark.lake.archiving import archive
from penstock.spark.lake.opening import open_lake
from penstock.spark.lake.verifying import verify
from penstock.spark.session import open_session

WANTED = 100_000
PAYLOAD = b"x" * 140
BATCH = 10_000


def main() -> None:
    arguments = _arguments()
    with tempfile.TemporaryDirectory(prefix="lake-", dir=arguments.out) as folder:
        url = arguments.url or f"sqlite:///{folder}/store.db"
        with penstock.connect(url) as store, open_session("archive", arguments.master) as spark:
            store.migrate()
            lake = open_lake(spark, store.engine, str(Path(folder) / "lake"), create=True)
            rates = []
            for size in [arguments.messages // 50, *arguments.steps * [arguments.messages]]:
                _fill(store, size)
                began = time.perf_counter()
                done = archive(spark, lake, url)
                seconds = time.perf_counter() - began
                rates.append(done.archive / seconds)
                told = f"{done.archive:,} messages, {done.audit:,} audit rows"
                print(f"  {told}: {seconds:.1f} s, {rates[-1]:,.0f}/s", flush=True)
            verdict = verify(spark, lake, url)
    print(f"verified: {verdict.ok}")
    counted = rates[1:]  # the first, small one only warms Java up
    best = max(counted)
    print(f"  {'met   ' if best >= WANTED else 'MISSED'}  at least {WANTED:,} finished messages/s: {best:,.0f}")
    print(f"  a message costs {counted[0] / counted[-1]:.2f} times as much in the last step as in the first")


def _fill(store: penstock.Store, messages: int) -> None:
    queue = store.queue("bench")
    for first in range(0, messages, BATCH):
        queue.send_many([b"%020d" % (first + number) + PAYLOAD for number in range(min(BATCH, messages - first))])
        while deliveries := queue.receive(limit=BATCH):
            queue.ack_many(deliveries)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_lake", description=__doc__)
    parser.add_argument(
        "--messages", type=int, default=2_000_000, help="finished messages of a step (default 2,000,000)"
    )
    parser.add_argument("--steps", type=int, default=3, help="how often (default 3)")
    parser.add_argument("--url", default=None, help="the store (default: a new SQLite file)")
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default local[2])")
    parser.add_argument("--out", default=None, help="where store and lake lie meanwhile (default: the system's place)")
    return parser.parse_args()


if __name__ == "__main__":
    main()
