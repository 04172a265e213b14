"""Frames and streams of a store, and a stream reader without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import penstock
from penstock import Queue, Store
from penstock.spark.options import read_options
from penstock.spark.source import PenstockSource, StreamReader

# Spark waits 10 seconds for the Python process of a stream, which cannot be configured.
LATE = "Python worker failed to connect back"
STARTS = 5


def open_store(folder: Path, name: str = "store.db") -> tuple[Store, str]:
    url = f"sqlite:///{folder / name}"
    return penstock.connect(url), url


def frame(spark: SparkSession, url: str, queue: str = "orders", **options: Any) -> DataFrame:
    return spark.read.format("penstock").options(url=url, queue=queue, **options).load()


def stream(spark: SparkSession, url: str, queue: str = "orders", **options: Any) -> DataFrame:
    return spark.readStream.format("penstock").options(url=url, queue=queue, **options).load()


def drain(rows: DataFrame, folder: Path, checkpoint: str = "checkpoint") -> StreamingQuery:
    """Write all rows available now to Parquet."""
    return run_stream(
        rows.writeStream.format("parquet")
        .option("path", str(folder / "out"))
        .option("checkpointLocation", str(folder / checkpoint))
        .trigger(availableNow=True)
    )


def run_stream(writer: DataStreamWriter) -> StreamingQuery:
    """Run a stream to its end. On a busy machine its Python process may be late; the query is then started again, from
    its checkpoint."""
    for attempt in range(STARTS):
        query = writer.start()
        try:
            query.awaitTermination()
            return query
        except StreamingQueryException as error:
            if LATE not in str(error) or attempt == STARTS - 1:
                raise
    raise AssertionError("unreachable")


def stream_reader(url: str, queue: str = "orders", **options: Any) -> StreamReader:
    """A stream reader, to be called as Spark's driver calls it."""
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
    """The payloads of ready messages, as numbers."""
    return sorted(int(delivery.payload) for delivery in queue.receive(limit=1_000_000, lease_seconds=3600))
