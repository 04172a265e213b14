"""`python -m bench.spark_lake`: finished messages per second, from the store to a published lake that verifies.

Also whether the cost of a row stays the same: the store is filled and archived several times, ever larger.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path

import penstock
from bench.finding import Target
from bench.spark.place import add_arguments, running, tell
from penstock.spark.lake.archive import archive
from penstock.spark.lake.lake import open_lake
from penstock.spark.lake.verification import verify
from penstock.spark.session import open_session

WANTED = 100_000
PAYLOAD = b"x" * 140
BATCH = 10_000
FLAT_STEPS = 10
MOST_GROWTH = 1.15


def main() -> None:
    arguments = _arguments()
    with running(arguments) as (url, folder):
        rates, verified = _measure(url, folder / "lake", arguments)
    median, grown = statistics.median(rates), rates[0] / rates[-1]
    targets = [
        Target(f"finished messages/s (at least {WANTED:,})", median, median >= WANTED),
        Target(f"a message in the last step, times the first (at most {MOST_GROWTH})", grown, grown <= MOST_GROWTH),
    ]
    print(f"verified: {verified}")
    document = {"engine": url.partition("://")[0], "messages_per_second": rates, "verified": verified}
    tell(arguments, "spark_lake", document, targets)


def _measure(url: str, place: Path, arguments: argparse.Namespace) -> tuple[list[float], bool]:
    """Messages per second of each step, and whether the lake is the store in the end."""
    rates = []
    with penstock.connect(url) as store, open_session("archive", arguments.master) as spark:
        store.migrate()
        lake = open_lake(spark, store.engine, str(place), create=True)
        # The first, small one warms up Java.
        for size in [arguments.messages // 50, *arguments.steps * [arguments.messages]]:
            _fill(store, size)
            began = time.perf_counter()
            done = archive(spark, lake, url)
            seconds = time.perf_counter() - began
            rates.append(done.archive / seconds)
            told = f"{done.archive:,} messages, {done.audit:,} audit rows"
            print(f"  {told}: {seconds:.1f} s, {rates[-1]:,.0f}/s", flush=True)
        return rates[1:], verify(spark, lake, url).ok


def _fill(store: penstock.Store, messages: int) -> None:
    queue = store.queue("bench")
    for first in range(0, messages, BATCH):
        queue.send_many([b"%020d" % (first + number) + PAYLOAD for number in range(min(BATCH, messages - first))])
        while deliveries := queue.receive(limit=BATCH):
            queue.ack_many(deliveries)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_lake", description=__doc__)
    parser.add_argument("--messages", type=int, help="finished messages of a step (default 1,000,000)")
    parser.add_argument("--steps", type=int, help="how often (default 2; with --full 10)")
    parser.add_argument("--full", action="store_true", help="up to 10 million messages: does one cost the same then?")
    add_arguments(parser)
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default local[2])")
    arguments = parser.parse_args()
    arguments.messages = arguments.messages or (50_000 if arguments.quick else 1_000_000)
    arguments.steps = arguments.steps or (FLAT_STEPS if arguments.full else 2)
    return arguments


if __name__ == "__main__":
    main()
