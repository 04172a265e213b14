"""`python -m bench.spark_lake`: finished messages per second, from the store to a published lake that verifies.

Also whether the cost of a row stays the same: the store is filled and archived several times, ever larger.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path

import penstock
from bench.finding import Target
from penstock.spark.lake.archiving import archive
from penstock.spark.lake.opening import open_lake
from penstock.spark.lake.verifying import verify
from penstock.spark.session import open_session

WANTED = 100_000
PAYLOAD = b"x" * 140
BATCH = 10_000
FLAT_STEPS = 10
MOST_GROWTH = 1.15


def main() -> None:
    arguments = _arguments()
    out = Path(arguments.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lake-", dir=out) as folder:
        url = arguments.url or f"sqlite:///{folder}/store.db"
        rates, verified = _measure(url, Path(folder) / "lake", arguments)
    grown = rates[0] / rates[-1]
    targets = [
        Target(
            f"finished messages/s (at least {WANTED:,})", statistics.median(rates), statistics.median(rates) >= WANTED
        ),
        Target(f"a message in the last step, times the first (at most {MOST_GROWTH})", grown, grown <= MOST_GROWTH),
    ]
    document = {
        "engine": url.partition("://")[0],
        "messages": arguments.messages,
        "load": os.getloadavg()[0],
        "messages_per_second": rates,
        "verified": verified,
        "targets": [{"text": one.text, "measured": one.measured, "is_met": one.is_met} for one in targets],
    }
    written = out / "spark_lake.json"
    written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"verified: {verified}")
    for target in targets:
        print(f"  {'met   ' if target.is_met else 'MISSED'}  {target.text}: {target.measured:,.2f}")
    print(f"\nWritten: {written}")


def _measure(url: str, place: Path, arguments: argparse.Namespace) -> tuple[list[float], bool]:
    """Messages per second of each step, and whether the lake is the store in the end."""
    rates = []
    with penstock.connect(url) as store, open_session("archive", arguments.master) as spark:
        store.migrate()
        lake = open_lake(spark, store.engine, str(place), create=True)
        # The first, small one only warms Java up.
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
    parser.add_argument("--quick", action="store_true", help="small: to see that it works")
    parser.add_argument("--url", default=None, help="the store (default: a new SQLite file)")
    parser.add_argument("--master", default="local[2]", help="where Spark runs (default local[2])")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    arguments = parser.parse_args()
    arguments.messages = arguments.messages or (50_000 if arguments.quick else 1_000_000)
    arguments.steps = arguments.steps or (FLAT_STEPS if arguments.full else 2)
    return arguments


if __name__ == "__main__":
    main()
