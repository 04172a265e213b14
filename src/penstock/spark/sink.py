"""Queues as a Spark sink: each row is sent exactly once, whichever processes crash.

Tasks stage their rows in the store under unique names, so that a task that runs twice does no harm. When all have
finished, the driver sends the rows of the successful attempts and records the batch in the ledger, in one transaction.
A batch that Spark repeats because the driver died before committing it finds the entry and sends nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.domain.errors import InvalidInput
from penstock.spark.engine_cache import engine_at
from penstock.spark.options import WriteOptions, write_options
from penstock.spark.sink_rows import check_rows, messages

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame

# Local properties that Spark sets for the tasks of a stream.
QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
KIND = "sink"


def check_append(overwrite: bool) -> None:
    if overwrite:
        raise InvalidInput(
            "messages are added to a queue, never replaced: use mode('append'), and flush the queue before"
        )


@dataclass
class Staged(WriterCommitMessage):
    """The rows that one task has staged."""

    key: str
    part: str
    partition: int
    count: int


class _Writing:
    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        check_rows(schema)
        engine_at(options.url).policy(options.queue)
        self.options = options

    def _stage(self, key: str, batches: Iterator[pyarrow.RecordBatch]) -> Staged:
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        part = f"{partition}/{uuid.uuid4()}"
        rows = (messages(batch, self.options.content_type) for batch in batches)
        count = engine_at(self.options.url).stage(self.options.queue, key, part, rows)
        return Staged(key, part, partition, count)

    def _release(self, key: str, staged: list[Any]) -> None:
        parts = [one.part for one in sorted(_present(staged), key=lambda one: one.partition)]
        engine_at(self.options.url).release(self.options.queue, key, parts)

    def _discard(self, key: str) -> None:
        engine_at(self.options.url).discard(self.options.queue, key)


def _present(staged: list[Any]) -> list[Staged]:
    return [one for one in staged if one is not None]


class BatchWriter(_Writing, DataSourceArrowWriter):
    """A write is one batch in the caller's ledger, or in a new one that is dropped after the commit."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self.key = f"{options.ledger or uuid.uuid4()}/{options.batch}"

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        return self._stage(self.key, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._release(self.key, messages)
        if self.options.ledger is None:
            _forget(self.options.url, [f"{self.key}/{self.options.queue}"])

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._discard(self.key)


class StreamWriter(_Writing, DataSourceStreamArrowWriter):
    """The ledger of a stream is named by its query id, which the checkpoint keeps."""

    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> Staged:
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_ID)
        batch = None if context is None else context.getLocalProperty(BATCH_ID)
        if not query or not batch:
            raise InvalidInput(
                "Spark did not say which batch of which query this is; use penstock.spark.sink.each_batch"
            )
        return self._stage(f"{query}/{batch}", iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for key in {one.key for one in _present(messages)}:
            self._release(key, messages)
            forget_earlier(self.options, key.rpartition("/")[0], batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        for key in {one.key for one in _present(messages)}:
            self._discard(key)


def forget_earlier(options: WriteOptions, ledger: str, batch: int) -> None:
    """Delete the entries of earlier batches: a stream repeats only its last one."""
    earlier = []
    for key in engine_at(options.url).ledger(KIND, f"{ledger}/"):
        number, _, queue = key.removeprefix(f"{ledger}/").partition("/")
        if queue == options.queue and number.isdigit() and int(number) < batch:
            earlier.append(key)
    _forget(options.url, earlier)


def _forget(url: str, keys: list[str]) -> None:
    if keys:
        engine_at(url).record(KIND, {}, keys)


def each_batch(queue: str, url: str | None = None) -> Callable[[DataFrame, int], None]:
    """A function for `writeStream.foreachBatch` that sends each micro-batch exactly once."""

    def send(frame: DataFrame, batch_id: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        if not query:
            raise InvalidInput("this is not called by a stream: write with format('penstock') and a ledger instead")
        writer = frame.write.format("penstock").mode("append").option("queue", queue)
        if url is not None:
            writer = writer.option("url", url)
        writer.option("ledger", query).option("batch", str(batch_id)).save()
        given = {"queue": queue} if url is None else {"queue": queue, "url": url}
        forget_earlier(write_options(given), query, batch_id)

    return send
