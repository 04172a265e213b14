"""The runs: reading a queue to Parquet in batch and as a stream, and sending rows to a queue."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from bench.spark.tables import COLUMNS, READ_TABLE, WRITE_TABLE, Peer, empty_written

PARTITIONS = 2
# Tuned JDBC settings: ten times Spark's batch size, and rewritten batch inserts.
TUNED = {"batchsize": "10000", "reWriteBatchedInserts": "true"}


class Runs:
    def __init__(
        self,
        spark: SparkSession,
        url: str,
        folder: Path,
        count: int,
        peer: Peer | None,
        payload: int,
        queue: str = "bench",
    ) -> None:
        self.spark = spark
        self.url = url
        self.folder = folder
        self.count = count
        self.peer = peer
        self.payload = payload
        self.options = {
            "url": url,
            "queue": queue,
            "columns": ",".join(COLUMNS),
            "minPartitions": str(PARTITIONS),
        }
        self.sent = 0
        self.made: dict[int, DataFrame] = {}

    def all(self) -> dict[str, Callable[[], float]]:
        """Each gives rows per second."""
        runs = {"batch read": self.batch_read, "stream": self.stream, "sink": self.sink}
        if self.peer is not None:
            runs |= {
                "batch read by JDBC": self.jdbc_read,
                "sink by JDBC": lambda: self.jdbc_sink({}),
                "sink by tuned JDBC": lambda: self.jdbc_sink(TUNED),
            }
        return runs

    def batch_read(self) -> float:
        return self._read(lambda: self.spark.read.format("penstock").options(**self.options).load())

    def jdbc_read(self) -> float:
        assert self.peer is not None
        bounds = {"partitionColumn": "position", "lowerBound": "1", "upperBound": str(self.count + 1)}
        options = {**self.peer.options, **bounds, "numPartitions": str(PARTITIONS), "fetchsize": "10000"}
        reading = self.spark.read.format("jdbc").options(url=self.peer.url, driver=self.peer.driver, dbtable=READ_TABLE)
        return self._read(lambda: reading.options(**options).load())

    def _read(self, load: Callable[[], DataFrame]) -> float:
        target = self._fresh("read")
        began = time.perf_counter()
        load().write.parquet(target)
        seconds = time.perf_counter() - began
        self._check(target)
        return self.count / seconds

    def stream(self) -> float:
        target, checkpoint = self._fresh("stream"), self._fresh("checkpoint")
        began = time.perf_counter()
        read = self.spark.readStream.format("penstock").options(**self.options).load()
        writing = read.writeStream.format("parquet").option("path", target).option("checkpointLocation", checkpoint)
        writing.trigger(availableNow=True).start().awaitTermination()
        seconds = time.perf_counter() - began
        self._check(target)
        return self.count / seconds

    def sink(self) -> float:
        self.sent += 1
        queue = f"sunk {self.sent}"
        rows = self._rows(PARTITIONS)
        began = time.perf_counter()
        rows.write.format("penstock").mode("append").options(url=self.url, queue=queue).save()
        return self.count / (time.perf_counter() - began)

    def jdbc_sink(self, settings: dict[str, str]) -> float:
        assert self.peer is not None
        # The queue that a message belongs to is a column, too, where there is no sink that knows it.
        rows = self._rows(self.peer.write_partitions).withColumn("queue", F.lit("sunk"))
        options = {**self.peer.options, **settings}
        writing = rows.write.format("jdbc").mode("append")
        began = time.perf_counter()
        writing.options(url=self.peer.url, driver=self.peer.driver, dbtable=WRITE_TABLE, **options).save()
        seconds = time.perf_counter() - began
        # The server would clean a table that has grown so much, in the next turns.
        empty_written(self.url)
        return self.count / seconds

    def _rows(self, partitions: int) -> DataFrame:
        """Cached rows: creating them costs Spark as much as sending them."""
        if partitions not in self.made:
            payload = F.rpad(F.col("id").cast("string"), self.payload, "x").cast("binary")
            rows = self.spark.range(0, self.count, 1, partitions).select(
                payload.alias("payload"), F.lit(0).alias("priority"), F.lit("text/plain").alias("content_type")
            )
            self.made[partitions] = rows.cache()
            assert rows.count() == self.count
        return self.made[partitions]

    def _fresh(self, name: str) -> str:
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        return str(path)

    def _check(self, target: str) -> None:
        found = self.spark.read.parquet(target).count()
        assert found == self.count, f"{found} rows instead of {self.count}"
