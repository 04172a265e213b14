"""The rows of a window as Arrow record batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain import refusals
from penstock.domain.message import BYTES, SYSTEM
from penstock.domain.results import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.engines.redis import shards
from penstock.engines.redis.connection import RedisDatabase
from penstock.engines.redis.windows import require

if TYPE_CHECKING:
    import pyarrow

Rows = list[list[Any]]
# The byte limit of a record batch, and the most rows that one call reads.
BATCH_BYTES = 16 * 1024 * 1024
CALL_ROWS = 1000

# The order of the columns in the replies.
_ENTRY = ("entry", "group", "state", "reason", "attempt", "by", "at", "event", "token")
_ENDED = ("outcome", "reason", "attempts")
_READ: dict[Table, tuple[str, ...]] = {
    "messages": tables.STORED,
    "archive": (*tables.STORED, "entry", "group", *_ENDED, "by", "finished_at", "event", "token"),
    "audit": ("position", "id", "created_at", *_ENTRY),
    "dead_letters": (*tables.STORED, "group", *_ENDED, "died_at"),
}
_DEFAULTS = {"content_type": BYTES, "created_by": SYSTEM, "by": SYSTEM}


def read(
    database: RedisDatabase, part: Part, batch_rows: int, columns: Sequence[str] | None
) -> Iterator[pyarrow.RecordBatch]:
    """Check the arguments immediately; the rows are read lazily."""
    table = tables.check_table(part.table)
    return _batches(database, part, table, batch_rows, tables.check_columns(table, columns))


def _batches(
    database: RedisDatabase, part: Part, table: Table, batch_rows: int, columns: tuple[str, ...]
) -> Iterator[pyarrow.RecordBatch]:
    name = shards.shard_name(part.queue, *part.witness) if part.witness else part.queue
    require(database, name)
    schema = tables.schema(table, columns)
    rows: Rows = []
    count = size = 0
    payload = _READ[table].index("payload") if "payload" in columns else None
    for row in _rows(database, name, part, table, columns):
        rows.append(row)
        size += 0 if payload is None else len(row[payload])
        if len(rows) == batch_rows or size >= BATCH_BYTES:
            count += len(rows)
            yield _record_batch(rows, _READ[table], schema, name)
            rows, size = [], 0
    if rows:
        count += len(rows)
        yield _record_batch(rows, _READ[table], schema, name)
    if count != part.count and table != "dead_letters":
        raise refusals.rows_removed(part, table, count)


def _rows(
    database: RedisDatabase, name: str, part: Part, table: Table, columns: tuple[str, ...]
) -> Iterator[list[Any]]:
    given = {"payload": "payload" in columns, "headers": "headers" in columns, "limit": CALL_ROWS, "size": BATCH_BYTES}
    for first, last in part.ranges:
        if table == "messages":
            after = first - 1
            while after < last:
                found, after = database.read("read_messages", name, after=after, last=last, **given)
                yield from found
        elif table == "dead_letters":
            place, total = 0, part.count
            while place < total:
                found, place, total = database.read("read_letters", name, first=first, last=last, place=place, **given)
                yield from found
        else:
            entry, position = first, 0
            while entry <= last:
                found, entry, position = database.read(
                    "read_entries", name, entry=entry, position=position, last=last,
                    messages=table == "archive", **given,
                )  # fmt: skip
                yield from found


def _record_batch(rows: Rows, names: tuple[str, ...], schema: pyarrow.Schema, queue: str) -> pyarrow.RecordBatch:
    arrow = tables.pyarrow_module()
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    place = shards.parsed(queue)
    columns["queue"] = (place.queue,) * len(rows)
    for name in ("position", "entry") if place.slots else ():
        if name in columns:
            columns[name] = tuple(place.outer(number) for number in columns[name])
    if "available_at" in columns:
        pairs = zip(columns["available_at"], columns["created_at"], strict=True)
        columns["available_at"] = tuple(created if due is None else due for due, created in pairs)
    return arrow.record_batch([_column(arrow, columns[field.name], field) for field in schema], schema=schema)


def _column(arrow: Any, values: tuple[Any, ...], field: pyarrow.Field) -> pyarrow.Array:
    default = _DEFAULTS.get(field.name)
    if field.type == arrow.string():
        values = tuple(one.decode() if isinstance(one, bytes) else default if one is None else one for one in values)
    return arrow.array(values, field.type)
