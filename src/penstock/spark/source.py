"""`format("penstock")`: queues as a Spark source, streaming and batch, and as a sink.

Spark creates these objects in its own processes and pickles them, so none holds a connection: a store is opened where
it is used. Invalid options are reported by `schema`, before any work starts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.domain.errors import InvalidInput, LogDiverged, RangeTrimmed
from penstock.domain.results import Part
from penstock.engines import tables
from penstock.engines.contract import Engine, Mark
from penstock.spark.engine_cache import engine_at
from penstock.spark.group_owner import GroupOwner
from penstock.spark.offsets import Offsets, check_same, from_document
from penstock.spark.options import ReadOptions, read_options, write_options
from penstock.spark.scan import Scan, read_part, with_advice

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("penstock.spark")


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        options = read_options(self.options)
        Scan(engine_at(options.url), options).queues()
        return from_arrow_schema(tables.schema(options.table, options.columns), prefer_timestamp_ntz=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(_with_columns(read_options(self.options), schema), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = _with_columns(read_options(self.options), schema)
        if options.table == "dead_letters":
            raise InvalidInput("dead_letters are read as they are now: spark.read, not spark.readStream")
        if options.end.word != "end":
            raise InvalidInput("endingPosition is for spark.read; a stream ends with trigger(availableNow=True)")
        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        from penstock.spark.sink import BatchWriter, check_append

        check_append(overwrite)
        return BatchWriter(write_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        from penstock.spark.sink import StreamWriter, check_append

        check_append(overwrite)
        return StreamWriter(write_options(self.options), schema)


def _with_columns(options: ReadOptions, schema: StructType) -> ReadOptions:
    """A schema given by the caller selects columns, as option `columns` does."""
    import msgspec

    return msgspec.structs.replace(options, columns=tables.check_columns(options.table, schema.names))


class Task(InputPartition):
    """The parts that one task reads. The URL is in the reader instead, which Spark never prints."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(None)
        self.parts = parts

    def __repr__(self) -> str:
        return f"Task({', '.join(f'{part.queue}: {part.count}' for part in self.parts)})"


class _ArrowReader:
    """Reads the parts of a task as record batches of exactly the schema that Spark expects."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.spark_schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Spark passes None when a read has no partitions."""
        return self._batches(partition) if isinstance(partition, Task) else iter(())

    def _batches(self, task: Task) -> Iterator[pyarrow.RecordBatch]:
        engine = engine_at(self.options.url)
        expected = to_arrow_schema(self.spark_schema, timezone="UTC")
        for part in task.parts:
            try:
                for batch in read_part(engine, part, self.options.columns):
                    yield batch.cast(expected)
            except RangeTrimmed as error:
                if self.options.fail_on_data_loss or isinstance(error, LogDiverged):
                    raise
                logger.warning("rows of %s were lost while they were read, and failOnDataLoss is false", part.queue)


class BatchReader(_ArrowReader, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        scan = Scan(engine_at(self.options.url), self.options)
        queues = scan.queues()
        return [Task(parts) for parts in scan.tasks(scan.starts(queues), scan.ends(queues))]


class StreamReader(_ArrowReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Runs on the driver for the lifetime of the query; executors read with copies of it."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._targets: dict[str, Mark] | None = None
        self._latest: Offsets | None = None
        self._group_at: Offsets | None = None
        self._owner = None if options.group is None else GroupOwner(options.group)

    @property
    def _engine(self) -> Engine:
        return engine_at(self.options.url)

    @property
    def _scan(self) -> Scan:
        return Scan(self._engine, self.options)

    @cached_property
    def _epoch(self) -> str:
        return self._engine.epoch()

    # -- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        scan = self._scan
        offsets = Offsets(self._epoch, self.options.table, scan.starts(scan.queues()))
        self._move_group(offsets)
        return offsets.document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark has no limit on both rows and bytes, so `latestOffset` applies the options itself."""
        if self.options.max_rows is not None:
            return ReadMaxRows(self.options.max_rows)
        return ReadAllAvailable() if self.options.max_bytes is None else ReadMaxBytes(self.options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        scan = self._scan
        self._targets = scan.ends(scan.queues())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Spark calls this when everything up to `start` has been processed, so the group is moved there."""
        offsets = self._checked(start)
        self._move_group(offsets)
        scan = self._scan
        targets = (
            self._targets
            if self._targets is not None
            else scan.ends(scan.queues() if scan.is_pattern else sorted(offsets.marks))
        )
        self._latest = offsets.moved(targets)
        limited = not isinstance(limit, ReadAllAvailable)
        marks: dict[str, Mark] = {}
        for queue, target in targets.items():
            if queue in offsets.marks:
                marks[queue] = scan.next_mark(queue, offsets.marks[queue], target, len(targets), limited)
            else:
                # A queue created since the last trigger: its messages are read by the next one, from the first on.
                marks[queue] = scan.earliest(queue)
        return offsets.moved(marks).document()

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begins, ends = self._checked(start), self._checked(end)
        return [Task(parts) for parts in self._scan.tasks(begins.marks, ends.marks)]

    def commit(self, end: dict[str, Any]) -> None:
        self._move_group(self._checked(end))

    def _checked(self, document: dict[str, Any]) -> Offsets:
        offsets = from_document(document)
        scan = self._scan
        check_same(offsets, self._epoch, self.options.table, None if scan.is_pattern else set(scan.queues()))
        return offsets

    def _move_group(self, offsets: Offsets) -> None:
        """Move the group's cursor, which `stats` shows. A group in use by workers or by another query is refused."""
        if self.options.group is None or self._owner is None:
            return
        self._owner.hold(self._engine, offsets.marks)
        if offsets == self._group_at:
            return
        for queue, mark in offsets.marks.items():
            try:
                self._engine.advance(queue, self.options.group, mark, self.options.table)
            except LogDiverged as error:
                raise with_advice(error) from None
        self._group_at = offsets
