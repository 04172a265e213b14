"""Stores as Spark reads them: frames, streams, and a stream without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import penstock
from penstock import Queue, Store
from penstock.spark.options import read_options
from penstock.spark.source import PenstockSource, StreamReader


def open_store(folder: Path, name: str = "store.db") -> tuple[Store, str]:
    url = f"sqlite:///{folder / name}"
    return penstock.connect(url), url


def frame(spark: SparkSession, url: str, queue: str = "orders", **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(url=url, queue=queue, **options).load()


def stream(spark: SparkSession, url: str, queue: str = "orders", **options: Any) -> DataFrame:
    return spark.readStream.format("penstock").options(url=url, queue=queue, **options).load()


def drain(rows: DataFrame, folder: Path, checkpoint: str = "checkpoint") -> StreamingQuery:
    """Write everything there is now to Parquet, and wait for the end."""
    query = (
        rows.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def stream_reader(url: str, queue: str = "orders", **options: Any) -> StreamReader:
    """The stream without Spark: what its driver asks, a test can ask as well."""
    given = {"url": url, "queue": queue, **{name: str(value) for name, value in options.items()}}
    source = PenstockSource(given)
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    assert reader.options == read_options(given)
    return reader


def rows_between(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    tasks = reader.partitions(start, end)
    return [row for task in tasks for batch in reader.read(task) for row in batch.to_pylist()]


def numbers(queue: Queue) -> list[int]:
    """The payloads that wait in a queue, which are numbers."""
    return sorted(int(delivery.payload) for delivery in queue.receive(limit=1_000_000, lease_seconds=3600))
