"""A driver program that runs jobs on a test cluster: `python -m tests.spark.cluster_jobs MASTER`.

It reads one job per line from stdin and writes a line when the job is done, because starting a driver takes longer than
most jobs. Tests kill it at any time.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable

from pyspark.sql import SparkSession

import penstock
from penstock.spark.lake import rows
from penstock.spark.lake.archive import archive
from penstock.spark.lake.lake import open_lake
from penstock.spark.process import process
from penstock.spark.session import open_session
from penstock.spark.sink import each_batch
from tests.spark.source_frames import run_stream

CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.ui.enabled": "false",
    "spark.task.maxFailures": "8",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
}


def copy(spark: SparkSession, url: str, checkpoint: str, rows: str) -> None:
    """Copy all available messages to another queue, in small batches."""
    options = {"url": url, "queue": "orders", "group": "copy", "maxRowsPerTrigger": rows, "minPartitions": "2"}
    read = spark.readStream.format("penstock").options(**options).load().select("payload", "key")
    writing = read.writeStream.foreachBatch(each_batch("copy", url)).option("checkpointLocation", checkpoint)
    run_stream(writing.trigger(availableNow=True))


def handle(spark: SparkSession, url: str) -> None:
    process(spark, url, "orders", "tests.spark.handlers:slow", tasks=2, concurrency=2, heartbeat_seconds=0.5)


def keep(spark: SparkSession, url: str, path: str) -> None:
    """Update a lake, with many small tasks."""
    rows.ROWS_PER_TASK = 100
    with penstock.connect(url) as store:
        archive(spark, open_lake(spark, store.engine, path, create=True), url)


def pour(spark: SparkSession, url: str, rows: str) -> None:
    """Send many messages in two large parts."""
    numbers = spark.range(0, int(rows), 1, 2).selectExpr("cast(cast(id as string) as binary) as payload")
    options = {"url": url, "queue": "poured", "ledger": "pour", "batch": "1"}
    numbers.write.format("penstock").mode("append").options(**options).save()


JOBS: dict[str, Callable[..., None]] = {"copy": copy, "handle": handle, "keep": keep, "pour": pour}


def drive(master: str) -> None:
    # Keep Java's output off stdout: send it to stderr.
    with os.fdopen(os.dup(1), "w", buffering=1) as answers:
        os.dup2(2, 1)
        with open_session("driving", master, CONF) as session:
            for line in sys.stdin:
                job, *words = json.loads(line)
                JOBS[job](session, *words)
                print("done", file=answers)


if __name__ == "__main__":
    drive(*sys.argv[1:])
