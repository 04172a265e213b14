"""Cost of a row at growing queue sizes, read to Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from bench.finding import spread
from bench.spark.runs import Runs

ROUNDS = 2


def flatness(
    spark: SparkSession, url: str, folder: Path, sizes: list[int], payload: int, fill: Callable[[str, int], None]
) -> dict[str, dict[str, Any]]:
    """Microseconds for a row, in one go and as a stream, at each size."""
    costs: dict[str, dict[str, Any]] = {}
    sent = 0
    for size in sizes:
        fill("flat", size - sent)
        sent = size
        runs = Runs(spark, url, folder, size, None, payload, queue="flat")
        for name, run in (("batch read", runs.batch_read), ("stream", runs.stream)):
            found = [1e6 / run() for _ in range(ROUNDS)]
            costs[f"{name}, {size:,} messages"] = spread(found)
            print(f"  {name}, {size:,} messages: {min(found):.2f} us/row", flush=True)
    return costs


def growth(costs: dict[str, dict[str, Any]], name: str) -> float:
    """How many times as much a row costs at the largest size as at the smallest."""
    found: list[float] = [cost["low"] for key, cost in costs.items() if key.startswith(name)]
    return found[-1] / found[0]
