"""From windows of the store to rows of the lake, on the executors and without leaving Arrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.connecting import open_engine
from penstock.domain.lifecycle import Event, State
from penstock.domain.observations import Part
from penstock.engines import tables
from penstock.engines.contract import Table

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.engines.contract import Engine
    from penstock.spark.lake.manifest import Span

LAKE_TABLES: tuple[Table, ...] = ("audit", "archive", "dead_letters")
# When a row happened: its day is its directory.
TIMES = {"audit": "at", "archive": "finished_at", "dead_letters": "died_at"}
SEND_COLUMNS = ("position", "id", "queue", "created_at", "created_by", "available_at")
# Rows that a task reads; smaller windows are one task, so that few small files come of them.
ROWS_PER_TASK = 250_000
# Enough to keep Arrow busy, and little memory.
BATCH_ROWS = 20_000


class Source(msgspec.Struct, frozen=True):
    """A part of a window, and what to make of it: rows of a lake's table, or sends for its audit."""

    part: Part
    place: int  # of the queue, in the order given
    makes_sends: bool = False


def sources(engine: Engine, table: Table, spans: dict[str, Span], parts: int) -> list[Source]:
    """What has to be read for one table of the lake.

    The audit of a store begins with what happens after the send, which is the message itself. The lake's audit is
    whole: sends are read off the log, and for messages that ended while they were held, off their ending.
    """
    found: list[Source] = []
    for place, (queue, span) in enumerate(spans.items()):
        if table == "dead_letters":
            found += [Source(part, place) for part in engine.window(queue, 0, 0, parts, table)]
            continue
        ends = (span.start.audit, span.end.audit)
        found += [Source(part, place) for part in engine.window(queue, *ends, parts, table)]
        if table == "audit":
            sent = engine.window(queue, span.start.messages, span.end.messages, parts, "messages")
            ended = engine.window(queue, *ends, parts, "archive")
            found += [Source(part, place, makes_sends=True) for part in [*sent, *ended]]
    return found


def frame(spark: SparkSession, url: str, table: Table, window: int, found: list[Source]) -> DataFrame:
    """The rows of all sources, with `window` and the `place` of their queue. Nothing is read before it is used."""
    bundles = _bundles(found, spark.sparkContext.defaultParallelism)

    def read(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        engine = open_engine(url)
        try:
            for batch in batches:
                for number in batch.column(0).to_pylist():
                    yield from _rows(engine, table, window, bundles[number])
        finally:
            engine.close()

    return spark.range(0, len(bundles), 1, max(1, len(bundles))).mapInArrow(read, _spark_schema(table, place=True))


def _bundles(found: list[Source], parallelism: int) -> list[list[Source]]:
    """Parts of like size for as many tasks as are worth it: the largest first, each to the task with the least."""
    total = sum(source.part.count for source in found)
    count = min(len(found), max(1, -(-total // ROWS_PER_TASK)) if total > ROWS_PER_TASK else 1, 64 * parallelism)
    bundles: list[list[Source]] = [[] for _ in range(count)]
    sizes = [0] * count
    for source in sorted(found, key=lambda one: -one.part.count):
        least = sizes.index(min(sizes))
        bundles[least].append(source)
        sizes[least] += source.part.count
    return bundles


def _rows(engine: Engine, table: Table, window: int, bundle: list[Source]) -> Iterator[pyarrow.RecordBatch]:
    schema = arrow_schema(table, place=True)
    for source in bundle:
        columns = None
        if source.makes_sends:
            columns = (*SEND_COLUMNS, "group") if source.part.table == "archive" else SEND_COLUMNS
        for batch in engine.read(source.part, BATCH_ROWS, columns):
            made = _sends(batch) if source.makes_sends else batch
            if made.num_rows:
                yield _widened(made, schema, window, source.place)


def _sends(batch: pyarrow.RecordBatch) -> pyarrow.RecordBatch:
    """Messages as the entries of their sends; of endings only those that concern all groups: they were held."""
    arrow = tables.pyarrow_module()
    from pyarrow import compute

    if "group" in batch.schema.names:
        batch = batch.filter(batch.column("group").is_null())
        held = [str(State.HELD)] * batch.num_rows
    else:
        held = compute.if_else(
            compute.greater(batch.column("available_at"), batch.column("created_at")), str(State.HELD), str(State.READY)
        )
    count = batch.num_rows
    given: dict[str, Any] = {
        "entry": arrow.array([0] * count, arrow.int64()),
        "position": batch.column("position"),
        "id": batch.column("id"),
        "queue": batch.column("queue"),
        "created_at": batch.column("created_at"),
        "at": batch.column("created_at"),
        "event": [str(Event.SEND)] * count,
        "state": held,
        "by": batch.column("created_by"),
        "group": arrow.nulls(count, arrow.string()),
        "reason": arrow.nulls(count, arrow.string()),
        "attempt": arrow.array([0] * count, arrow.int32()),
        "token": arrow.nulls(count, arrow.int64()),
    }
    return arrow.record_batch(given)


def _widened(batch: pyarrow.RecordBatch, schema: pyarrow.Schema, window: int, place: int) -> pyarrow.RecordBatch:
    arrow = tables.pyarrow_module()
    count = batch.num_rows
    arrays = [batch.column(name) for name in schema.names[:-2]]
    arrays += [arrow.repeat(arrow.scalar(window, arrow.int64()), count)]
    arrays += [arrow.repeat(arrow.scalar(place, arrow.int32()), count)]
    return arrow.record_batch(
        [array.cast(field.type) for array, field in zip(arrays, schema, strict=True)], schema=schema
    )


def arrow_schema(table: Table, *, place: bool = False) -> pyarrow.Schema:
    """The columns of a lake's table: those of the store's, nullable as Spark has them, and the window they came in."""
    arrow = tables.pyarrow_module()
    fields = [field.with_nullable(True) for field in tables.schema(table)]
    fields.append(arrow.field("window", arrow.int64()))
    if place:
        fields.append(arrow.field("place", arrow.int32()))
    return arrow.schema(fields)


def _spark_schema(table: Table, *, place: bool = False) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(arrow_schema(table, place=place))


def spark_schema(table: Table) -> StructType:
    return _spark_schema(table)
