"""`python -m bench.spark_tables`: the tables of one generated lake, on one core and on two.

Each number of cores is a Spark of its own. They take turns, so that a busy moment of the machine hits both, and every
turn computes every table once. Before, each computes them from one file of the lake, because Java is still compiling
then. How long each table takes is told as it comes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from bench.spark_tables.history import history, messages_for
from penstock.spark.failures import failing, failures, poison
from penstock.spark.lifecycles import leases, lifecycles, outcomes
from penstock.spark.metrics import flows, metrics
from penstock.spark.session import open_session
from penstock.spark.workers import utilisation

WANTED = 1.5
FILES = 16


def main() -> None:
    arguments = _arguments()
    if arguments.worker:
        _work(Path(arguments.place), arguments.worker)
        return
    out = Path(arguments.out).absolute()
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="lake-", dir=out) as folder:
        rows = _generate(Path(folder), arguments.rows)
        found = _measure(Path(folder), arguments.rounds)
    one, two = statistics.median(found[1]), statistics.median(found[2])
    print(f"{rows:,} audit rows; every table once: {one:.1f} s on local[1], {two:.1f} s on local[2]")
    ratio = one / two
    print(f"  {'met   ' if ratio >= WANTED else 'MISSED'}  local[2] at least {WANTED} times as fast: {ratio:.2f}")
    written = out / "spark_tables.json"
    document = {
        "rows": rows,
        "load": os.getloadavg()[0],
        "seconds": {"local[1]": found[1], "local[2]": found[2]},
        "ratio": ratio,
        "is_met": ratio >= WANTED,
    }
    written.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    print(f"\nWritten: {written}")


def _generate(folder: Path, rows: int) -> int:
    began = time.perf_counter()
    with open_session("history", "local[2]") as spark:
        history(spark, messages_for(rows), partitions=FILES).write.parquet(str(folder / "audit"))
        count = spark.read.parquet(str(folder / "audit")).count()
    print(f"  {count:,} audit rows made in {time.perf_counter() - began:.0f} s", flush=True)
    return count


def _measure(folder: Path, rounds: int) -> dict[int, list[float]]:
    command = [sys.executable, "-m", "bench.spark_tables", "--place", str(folder), "--worker"]
    workers = {
        cores: subprocess.Popen([*command, str(cores)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for cores in (1, 2)
    }
    found: dict[int, list[float]] = {1: [], 2: []}
    for turn in range(rounds + 1):
        for cores, worker in workers.items():
            took = _turn(worker, f"turn {turn}, local[{cores}]")
            if turn:
                found[cores].append(took)
    for worker in workers.values():
        worker.communicate()
    return found


def _turn(worker: subprocess.Popen[str], name: str) -> float:
    """Every table once; the sum of their seconds."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    print("go", file=worker.stdin, flush=True)
    total = 0.0
    for line in worker.stdout:
        table, seconds = line.split()
        if table == "all":
            break
        total += float(seconds)
        print(f"  {name}, {table}: {float(seconds):.1f} s", flush=True)
    else:
        raise SystemExit(f"{name}: Spark has ended")
    print(f"  {name}: {total:.1f} s", flush=True)
    return total


def _work(folder: Path, cores: int) -> None:
    """Every table once for each line that comes in, at first of a part of the lake; how long each took goes out."""
    with open_session("tables", f"local[{cores}]", {"spark.driver.memory": "3g"}) as spark:
        whole = str(folder / "audit")
        part = str(next((folder / "audit").glob("*.parquet")))
        for turn, _ in enumerate(sys.stdin):
            _compute(spark, spark.read.parquet(whole if turn else part), str(folder / f"lifecycles-{cores}"))
            print("all", 0, flush=True)


def _compute(spark: SparkSession, audit: DataFrame, kept: str) -> None:
    began = time.perf_counter()
    lifecycles(audit).write.mode("overwrite").parquet(kept)
    _tell("lifecycles", began)
    lives = spark.read.parquet(kept)
    counted, failed = flows(audit).persist(), failing(audit).persist()
    for name, table in (
        ("outcomes", outcomes(lives)),
        ("metrics", metrics(counted, lives)),
        ("failures", failures(failed)),
        ("poison", poison(failed)),
        ("utilisation", utilisation(leases(audit))),
    ):
        began = time.perf_counter()
        table.write.format("noop").mode("overwrite").save()
        _tell(name, began)
    counted.unpersist(blocking=True)
    failed.unpersist(blocking=True)


def _tell(table: str, began: float) -> None:
    print(table, time.perf_counter() - began, flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.spark_tables", description=__doc__)
    parser.add_argument("--rows", type=int, help="audit rows (default 2,000,000; with --full 10,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="turns that count (default 3)")
    parser.add_argument("--full", action="store_true", help="a lake of 10 million audit rows")
    parser.add_argument("--quick", action="store_true", help="small: to see that it works")
    parser.add_argument("--out", default="bench-results", help="where results go (default ./bench-results)")
    parser.add_argument("--worker", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--place", default="", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rounds < 1:
        parser.error(f"--rounds must be at least 1, not {arguments.rounds}")
    arguments.rows = arguments.rows or (10_000_000 if arguments.full else 100_000 if arguments.quick else 2_000_000)
    return arguments


if __name__ == "__main__":
    main()
