"""The rows of a window as Arrow record batches.

Only values that differ from row to row are read: those that all rows of a lane, or all messages of an audit entry,
have in common are added here. Generated ids are not read either: they follow from time and position, and computing them
in the server would take longer than everything else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain import refusals
from penstock.domain.errors import RangeTrimmed
from penstock.domain.results import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.engines.postgres import copy
from penstock.engines.postgres.arrow import Columns, Lane
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.windows import SQL, text_of

if TYPE_CHECKING:
    import pyarrow


def read(
    database: Database, part: Part, batch_rows: int, columns: Sequence[str] | None, salt: int
) -> Iterator[pyarrow.RecordBatch]:
    """Arguments are checked immediately; rows are read as they are consumed."""
    table = tables.check_table(part.table)
    schema = tables.schema(table, columns)
    return _read(database, part, table, batch_rows, schema, salt)


def _read(
    database: Database, part: Part, table: Table, batch_rows: int, schema: pyarrow.Schema, salt: int
) -> Iterator[pyarrow.RecordBatch]:
    queue_id, lanes = _lanes(database, part.queue)
    if table == "messages":
        lanes = [lane for lane in lanes if lane.priority >= 0]
    shape = Columns(schema, part.queue, lanes, salt)
    if table in ("audit", "archive"):
        shape.trail = copy.table(database, SQL.trail, _trail(part, queue_id))
    rows = copy.rows(database, *_query(database, part, queue_id, shape))
    if table != "dead_letters":
        rows = _checked(database, part, rows)
    count = 0
    for found in rows:
        for first, last in _slices(found.num_rows, batch_rows):
            batch = shape.shaped(found.slice(first, last - first))
            count += batch.num_rows
            yield batch
    if count < part.count and part.is_counted and table != "dead_letters":
        raise RangeTrimmed(
            f"only {count} of {part.count} rows of the {table} of queue {part.queue!r} are left: the others were "
            "removed meanwhile"
        )


def _slices(count: int, most: int) -> Iterator[tuple[int, int]]:
    """Slices of similar size, because each has a fixed cost."""
    slices = -(-count // most)
    for number in range(slices):
        yield count * number // slices, count * (number + 1) // slices


def _lanes(database: Database, queue: str) -> tuple[int, list[Lane]]:
    rows = database.rows(SQL.lanes, (queue,))
    if not rows:
        raise refusals.no_queue(queue, ())
    return rows[0][0], [Lane(*row[1:]) for row in rows if row[1] is not None]


def _query(database: Database, part: Part, queue_id: int, shape: Columns) -> tuple[str, tuple[Any, ...]]:
    if part.table == "messages":
        ends = (text_of(part.start), text_of(part.end))
        between = database.value(SQL.between, (*ends, *_places(part), part.queue))
        return _with_columns(SQL.message_rows, shape).replace("{between}", between), ()
    if part.table == "dead_letters":
        before, last = part.ranges
        return _with_columns(SQL.letter_rows, shape), (queue_id, *before, *last)
    lanes = [lane.lane_id for lane in shape.lanes]
    return _with_columns(SQL.trail_rows, shape), (*_trail(part, queue_id), lanes)


def _with_columns(statement: str, shape: Columns) -> str:
    columns = (f'{SQL.blocks.get(f"raw_{name}", f"m.{name}")} as "{name}"' for name in shape.raw)
    return statement.replace("{columns}", ", ".join(columns))


def _places(part: Part) -> tuple[str, int, str, int]:
    before, last = part.ranges
    return str(before[0]), before[1], str(last[0]), last[1]


def _trail(part: Part, queue_id: int) -> tuple[Any, ...]:
    before, last = part.ranges
    return text_of(part.start), text_of(part.end), part.table == "archive", queue_id, before[0] + 1, last[0]


def _checked(database: Database, part: Part, rows: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Check for removed rows after the first batch: by then the statement has its snapshot, which still shows rows that
    are removed later."""
    first = next(rows, None)
    ends = (text_of(part.start), text_of(part.end))
    database.rows(SQL.check_part, (part.queue, part.table, *ends, *_places(part), *part.witness))
    if first is not None:
        yield first
        yield from rows
