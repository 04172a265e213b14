"""From windows of the store to rows of the lake, on the executors and without leaving Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.domain.observations import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.spark.stores import engine_at

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
    """A part of a window, and the place of its queue in the order given."""

    part: Part
    place: int


def sources(engine: Engine, table: Table, spans: dict[str, Span], parts: int) -> list[Source]:
    """What has to be read for one table of the lake.

    The audit of a store begins with what happens after the send, which is the message itself. The lake's audit is
    whole: sends are read off the log. A message that ended while it was held never came to the log; its send is read
    off its end, which does not say who sent it.
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
            found += [Source(part, place) for part in sent]
    return found


def frame(spark: SparkSession, url: str, table: Table, window: int, found: list[Source]) -> DataFrame:
    """The rows of all sources, with `window` and the `place` of their queue. Nothing is read before it is used."""
    bundles = bundled(spark, found)
    return tasks(spark, bundles).mapInArrow(reader(url, table, window, bundles), _spark_schema(table, place=True))


def tasks(spark: SparkSession, bundles: list[list[Source]]) -> DataFrame:
    """One task for each bundle."""
    return spark.range(0, len(bundles), 1, max(1, len(bundles)))


def reader(
    url: str, table: Table, window: int, bundles: list[list[Source]]
) -> Callable[[Iterable[pyarrow.RecordBatch]], Iterator[pyarrow.RecordBatch]]:
    """From numbers of bundles to their rows, on an executor."""

    def read(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        engine = engine_at(url)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _rows(engine, table, window, bundles[number])

    return read


def bundled(spark: SparkSession, found: list[Source]) -> list[list[Source]]:
    """Parts of like size for as many tasks as are worth it: the largest first, each to the task with the least."""
    total = sum(source.part.count for source in found)
    count = min(len(found), max(1, -(-total // ROWS_PER_TASK)), 64 * spark.sparkContext.defaultParallelism)
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
        columns = SEND_COLUMNS if source.part.table == "messages" else None
        for batch in engine.read(source.part, BATCH_ROWS, columns):
            for made in _audit_batches(batch) if table == "audit" else [batch]:
                yield _widened(made, schema, window, source.place)


def _audit_batches(batch: pyarrow.RecordBatch) -> Iterator[pyarrow.RecordBatch]:
    """Messages become the entries of their sends; entries stay, and those that ended held messages make sends too."""
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
