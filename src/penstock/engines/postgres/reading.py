"""The rows of a window as Arrow record batches.

Only what differs from row to row is read: what all rows of a lane, or all messages of a step, have in common is put
beside them here. Ids that Penstock made are not read either: they follow from time and place, and the server would need
longer for them than for all the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import NotFound, RangeTrimmed
from penstock.domain.names import shown
from penstock.domain.observations import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.engines.postgres import bulk
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.raw import Columns, Lane
from penstock.engines.postgres.windows import SQL, text_of

if TYPE_CHECKING:
    import pyarrow

Query = tuple[str, tuple[Any, ...]]


def read(
    database: Database, part: Part, batch_rows: int, columns: Sequence[str] | None, salt: int
) -> Iterator[pyarrow.RecordBatch]:
    """What is asked for is checked at once, what is there is read as it is needed."""
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
        shape.trail = bulk.table(database, SQL.trail, _trail(part, queue_id))
    count = 0
    for found in bulk.rows(database, *_query(database, part, queue_id, shape)):
        for first in range(0, found.num_rows, batch_rows):
            batch = shape.shaped(found.slice(first, batch_rows))
            count += batch.num_rows
            yield batch
    if count < part.count and table != "dead_letters":
        raise RangeTrimmed(
            f"only {count} of {part.count} rows of the {table} of queue {part.queue!r} are left: the others were "
            "removed meanwhile"
        )


def _lanes(database: Database, queue: str) -> tuple[int, list[Lane]]:
    rows = database.rows(SQL.lanes, (queue,))
    if not rows:
        raise NotFound(f"there is no queue {shown(queue)}")
    return rows[0][0], [Lane(*row[1:]) for row in rows if row[1] is not None]


def _query(database: Database, part: Part, queue_id: int, shape: Columns) -> Query:
    columns = ", ".join(SQL.blocks.get(f"raw_{name}", f"m.{name}") for name in shape.raw)
    before, last = part.ranges
    if part.table == "messages":
        places = (str(before[0]), before[1], str(last[0]), last[1])
        between = database.value(SQL.between, (text_of(part.start), text_of(part.end), *places, part.queue))
        return SQL.message_rows.replace("{columns}", columns).replace("{between}", between), ()
    if part.table == "dead_letters":
        return SQL.letter_rows.replace("{columns}", columns), (queue_id, *before, *last)
    lanes = [lane.lane_id for lane in shape.lanes]
    return SQL.trail_rows.replace("{columns}", columns), (*_trail(part, queue_id), lanes)


def _trail(part: Part, queue_id: int) -> tuple[Any, ...]:
    before, last = part.ranges
    return text_of(part.start), text_of(part.end), part.table == "archive", queue_id, before[0] + 1, last[0]
