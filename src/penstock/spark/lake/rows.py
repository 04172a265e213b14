"""Rows of the store as rows of the lake: converted on the executors, as Arrow batches throughout."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.errors import RangeTrimmed
from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.domain.results import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.spark.engine_cache import engine_at
from penstock.spark.lake.columns import LAKE_TABLES, arrow_schema, spark_schema
from penstock.spark.lake.manifest import Marks, Span
from penstock.spark.scan import pack, read_part, split

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.engines.contract import Engine

SEND_COLUMNS = ("position", "id", "queue", "created_at", "created_by", "available_at")
# Larger than for the source: each task writes at least one file for each queue it reads.
ROWS_PER_TASK = 250_000
TASKS_PER_CORE = 64
PARTS_PER_CORE = 2


class LakePart(msgspec.Struct, frozen=True):
    """A part of the store, and the table and window of the lake that its rows go to."""

    table: Table
    window: int
    part: Part

    @property
    def count(self) -> int:
        return self.part.count


def split_audit(
    spark: SparkSession, engine: Engine, queue: str, span: Span, on_trimmed: Callable[[RangeTrimmed], None]
) -> tuple[Span, list[Part]]:
    """The parts of the lake's audit, and the span that they cover.

    The store's audit begins after the send, because the message itself records the send. The lake's audit is complete:
    sends are read from the log. A message that ended while it was held never reached the log; its send is derived from
    its last entry, which does not name the sender.
    """
    parts = _part_count(spark)
    start, end = span.start, span.end
    audit_start, entries = split(engine, queue, start.audit, end.audit, parts, "audit", on_trimmed)
    log_start, sends = split(engine, queue, start.messages, end.messages, parts, "messages", on_trimmed)
    return Span(Marks(audit_start, log_start), end), [*entries, *sends]


def split_table(spark: SparkSession, engine: Engine, table: Table, queue: str, span: Span) -> list[Part]:
    """The parts of a table in a span; dead letters are read as they are now. RangeTrimmed when some have gone."""
    if table == "audit":
        return split_audit(spark, engine, queue, span, _refuse)[1]
    start, end = (0, 0) if table == "dead_letters" else (span.start.audit, span.end.audit)
    return split(engine, queue, start, end, _part_count(spark), table, _refuse)[1]


def _refuse(error: RangeTrimmed) -> None:
    raise error


def _part_count(spark: SparkSession) -> int:
    return PARTS_PER_CORE * spark.sparkContext.defaultParallelism


def pack_tables(spark: SparkSession, parts: Sequence[LakePart]) -> list[tuple[LakePart, ...]]:
    """Tasks of one table each."""
    most = TASKS_PER_CORE * spark.sparkContext.defaultParallelism
    by_table = ([part for part in parts if part.table == table] for table in LAKE_TABLES)
    return [task for chosen in by_table for task in pack(chosen, ROWS_PER_TASK, most)]


def map_tasks(
    spark: SparkSession,
    url: str,
    tasks: list[tuple[LakePart, ...]],
    then: Callable[[Table, Iterator[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """Read the parts of each task and pass their rows to a function within the same task."""

    def run(numbers: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        engine = engine_at(url)
        for task in (tasks[number] for batch in numbers for number in batch.column(0).to_pylist()):
            yield from then(task[0].table, (batch for part in task for batch in rows(engine, part)))

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(run, schema)


def frame(spark: SparkSession, url: str, table: Table, parts: Sequence[LakePart]) -> DataFrame:
    """The rows of the parts of a table, read when an action runs."""
    return map_tasks(spark, url, pack_tables(spark, parts), lambda _, batches: batches, spark_schema(table))


def rows(engine: Engine, source: LakePart) -> Iterator[pyarrow.RecordBatch]:
    schema = arrow_schema(source.table)
    columns = SEND_COLUMNS if source.part.table == "messages" else None
    for batch in read_part(engine, source.part, columns):
        for made in _audit_batches(batch) if source.table == "audit" else [batch]:
            yield _with_window(made, schema, source.window)


def _audit_batches(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Convert messages to send entries. Pass entries through, and add sends for messages that ended while held."""
    from pyarrow import compute

    if "created_by" in batch.schema.names:
        held = compute.greater(batch.column("available_at"), batch.column("created_at"))
        yield _sends(batch, compute.if_else(held, str(State.HELD), str(State.READY)), batch.column("created_by"))
        return
    yield batch
    if batch.column("group").null_count:
        ended = compute.is_in(batch.column("state"), tables.pyarrow_module().array([str(one) for one in OUTCOMES]))
        gone = batch.filter(compute.and_(batch.column("group").is_null(), ended))
        if gone.num_rows:
            yield _sends(gone, str(State.HELD), None)


def _sends(batch: pyarrow.RecordBatch, state: Any, by: Any) -> pyarrow.RecordBatch:
    arrow = tables.pyarrow_module()
    given = {name: batch.column(name) for name in ("position", "id", "queue", "created_at")}
    given |= {"at": batch.column("created_at"), "event": str(Event.SEND), "state": state, "by": by}
    given |= {"entry": 0, "attempt": 0, "group": None, "reason": None, "token": None}
    columns = []
    for field in tables.schema("audit"):
        value = given[field.name]
        is_array = isinstance(value, arrow.Array)
        columns.append(value if is_array else arrow.repeat(arrow.scalar(value, field.type), batch.num_rows))
    return arrow.record_batch(columns, names=tables.columns_of("audit"))


def _with_window(batch: pyarrow.RecordBatch, schema: pyarrow.Schema, window: int) -> pyarrow.RecordBatch:
    arrow = tables.pyarrow_module()
    arrays = [batch.column(field.name).cast(field.type) for field in list(schema)[:-1]]
    arrays.append(arrow.repeat(arrow.scalar(window, arrow.int64()), batch.num_rows))
    return arrow.record_batch(arrays, schema=schema)
