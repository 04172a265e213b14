"""`format("penstock")`: queues as a source of Spark, streaming and batch, and as its sink.

Spark makes these objects in processes of its own and hands them on by pickling, so none keeps a connection: a store is
opened where it is used. What is wrong with the options is said in `schema`, before any work starts.
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
from penstock.domain.observations import Part
from penstock.engines import tables
from penstock.engines.contract import Engine, Mark
from penstock.spark.holder import Holder
from penstock.spark.offsets import Offsets, check_same, from_document
from penstock.spark.options import ReadOptions, read_options, write_options
from penstock.spark.reach import Reach, with_advice
from penstock.spark.stores import engine_at

if TYPE_CHECKING:
    import pyarrow

logger = logging.getLogger("penstock.spark")
# A batch costs as much as a thousand rows, however small it is.
BATCH_ROWS = 20_000


class PenstockSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        options = read_options(self.options)
        Reach(engine_at(options.url), options).queues()
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
    """A schema of the caller's own names the columns as the option does."""
    import msgspec

    return msgspec.structs.replace(options, columns=tables.check_columns(options.table, schema.names))


class Task(InputPartition):
    """What one task reads. It holds no URL: that travels with the reader, which is never shown."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(None)
        self.parts = parts

    def __repr__(self) -> str:
        return f"Task({', '.join(f'{part.queue}: {part.count}' for part in self.parts)})"


class _Reading:
    """What both readers do: read the parts of a task as record batches of exactly the schema that Spark expects."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self.options = options
        self.spark_schema = schema

    def read(self, partition: InputPartition | None) -> Iterator[pyarrow.RecordBatch]:
        """Spark asks for None where a read has no partitions at all."""
        return self._batches(partition) if isinstance(partition, Task) else iter(())

    def _batches(self, task: Task) -> Iterator[pyarrow.RecordBatch]:
        engine = engine_at(self.options.url)
        expected = to_arrow_schema(self.spark_schema, timezone="UTC")
        for part in task.parts:
            try:
                for batch in engine.read(part, BATCH_ROWS, self.options.columns):
                    yield batch.cast(expected)
            except RangeTrimmed as error:
                if self.options.fail_on_data_loss or isinstance(error, LogDiverged):
                    raise
                logger.warning("rows of %s were lost while they were read, and failOnDataLoss is false", part.queue)


class BatchReader(_Reading, DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        reach = Reach(engine_at(self.options.url), self.options)
        queues = reach.queues()
        return [Task(parts) for parts in reach.tasks(reach.starts(queues), reach.ends(queues))]


class StreamReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives on the driver for as long as the query runs; the copy that reads on executors is another one."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._targets: dict[str, Mark] | None = None
        self._latest: Offsets | None = None
        self._placed: Offsets | None = None
        self._holder = None if options.group is None else Holder(options.group)

    @property
    def _engine(self) -> Engine:
        return engine_at(self.options.url)

    @property
    def _reach(self) -> Reach:
        return Reach(self._engine, self.options)

    @cached_property
    def _epoch(self) -> str:
        return self._engine.epoch()

    # -- offsets ---------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        reach = self._reach
        offsets = Offsets(self._epoch, self.options.table, reach.starts(reach.queues()))
        self._place(offsets)
        return offsets.document()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Spark knows no limit of both rows and bytes: `latestOffset` looks at the options itself."""
        if self.options.max_rows is not None:
            return ReadMaxRows(self.options.max_rows)
        return ReadAllAvailable() if self.options.max_bytes is None else ReadMaxBytes(self.options.max_bytes)

    def prepareForTriggerAvailableNow(self) -> None:
        reach = self._reach
        self._targets = reach.ends(reach.queues())

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Asked for when everything up to `start` has been processed, so this is also where the group stands now."""
        offsets = self._checked(start)
        self._place(offsets)
        reach = self._reach
        targets = self._targets if self._targets is not None else reach.ends(self._reading(reach, offsets))
        self._latest = offsets.moved(targets)
        limited = not isinstance(limit, ReadAllAvailable)
        marks: dict[str, Mark] = {}
        for queue, target in targets.items():
            if queue in offsets.marks:
                marks[queue] = reach.next_mark(queue, offsets.marks[queue], target, len(targets), limited)
            else:
                # A queue that was made meanwhile: its messages come with the next trigger, from the first one on.
                marks[queue] = self._engine.earliest(queue, self.options.table)
        return offsets.moved(marks).document()

    def _reading(self, reach: Reach, offsets: Offsets) -> list[str]:
        return reach.queues() if reach.is_pattern else sorted(offsets.marks)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        return None if self._latest is None else self._latest.document()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        begins, ends = self._checked(start), self._checked(end)
        return [Task(parts) for parts in self._reach.tasks(begins.marks, ends.marks)]

    def commit(self, end: dict[str, Any]) -> None:
        self._place(self._checked(end))

    def _checked(self, document: dict[str, Any]) -> Offsets:
        offsets = from_document(document)
        reach = self._reach
        check_same(offsets, self._epoch, self.options.table, None if reach.is_pattern else set(reach.queues()))
        return offsets

    def _place(self, offsets: Offsets) -> None:
        """Show in `stats` how far the group has come; a group that workers or another query use is refused here."""
        if self.options.group is None or self._holder is None:
            return
        self._holder.hold(self._engine, offsets.marks)
        if offsets == self._placed:
            return
        for queue, mark in offsets.marks.items():
            try:
                self._engine.advance(queue, self.options.group, mark, self.options.table)
            except LogDiverged as error:
                raise with_advice(error) from None
        self._placed = offsets
