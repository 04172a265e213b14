"""The rows of a window as Arrow record batches. Ids that Penstock made are not read: they follow from time and place,
and the server would need longer for them than for all the rest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import RangeTrimmed
from penstock.domain.observations import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.engines.identities import made_ids
from penstock.engines.postgres import bulk, shapes
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.windows import SQL

if TYPE_CHECKING:
    import pyarrow

# Columns that are read besides those asked for, and go into the ids.
_SENT_AT, _PLACE = "sent_at", "place"


def read(
    database: Database, part: Part, batch_rows: int, columns: Sequence[str] | None, salt: int
) -> Iterator[pyarrow.RecordBatch]:
    """What is asked for is checked at once, what is there is read as it is needed."""
    table = tables.check_table(part.table)
    schema = tables.schema(table, columns)
    if table == "dead_letters":
        return _letters(database, part, batch_rows, schema)
    return _read(database, part, table, batch_rows, schema, salt)


def _read(
    database: Database, part: Part, table: Table, batch_rows: int, schema: pyarrow.Schema, salt: int
) -> Iterator[pyarrow.RecordBatch]:
    statement = (SQL.message_rows if table == "messages" else SQL.trail_rows).replace("{columns}", _selected(schema))
    count = 0
    for found in bulk.rows(database, statement, _bounds(database, part, table)):
        count += found.num_rows
        for first in range(0, found.num_rows, batch_rows):
            yield _shaped(found.slice(first, batch_rows), schema, salt)
    if count < part.count:
        raise RangeTrimmed(
            f"only {count} of {part.count} rows of the {table} of queue {part.queue!r} are left: the others were "
            "removed meanwhile"
        )


def _selected(schema: pyarrow.Schema) -> str:
    chosen = [f'{SQL.blocks[_block(name)]} as "{name}"' for name in schema.names]
    if "id" in schema.names:
        chosen += [f"{SQL.column_created_at} as {_SENT_AT}", f"{SQL.column_position} as {_PLACE}"]
    return ", ".join(chosen)


def _block(name: str) -> str:
    return "column_chosen_id" if name == "id" else f"column_{name}"


def _bounds(database: Database, part: Part, table: Table) -> tuple[Any, ...]:
    queue_id = database.value(SQL.queue_number, (part.queue,))
    marks = (str(part.start), str(part.end))
    before, last = part.ranges
    if table == "messages":
        return (*marks, queue_id, *_place(before), *_place(last))
    return (*marks, table == "archive", queue_id, before[0] + 1, last[0])


def _place(place: Sequence[int]) -> tuple[str, int]:
    """A transaction number has 64 bits without a sign: it travels as text."""
    return str(place[0]), place[1]


def _shaped(found: pyarrow.RecordBatch, schema: pyarrow.Schema, salt: int) -> pyarrow.RecordBatch:
    arrow = tables.pyarrow_module()
    return arrow.record_batch([_column(found, field, salt) for field in schema], schema=schema)


def _column(found: pyarrow.RecordBatch, field: pyarrow.Field, salt: int) -> pyarrow.Array:
    import pyarrow.compute

    column = found.column(field.name)
    if field.name == "id" and column.null_count:
        made = made_ids(found.column(_SENT_AT).to_numpy(), salt, found.column(_PLACE).to_numpy())
        return made if column.null_count == len(column) else pyarrow.compute.coalesce(column, made)
    if field.name == "reason":
        column = pyarrow.compute.replace_substring(column, shapes.NUL, "\0")
    return column.cast(field.type)


# -- dead letters: few, and read page by page ------------------------------------------------------------------------


def _letters(database: Database, part: Part, batch_rows: int, schema: pyarrow.Schema) -> Iterator[pyarrow.RecordBatch]:
    arrow = tables.pyarrow_module()
    wanted = ", ".join(SQL.blocks.get(f"letter_{name}") or SQL.blocks[f"column_{name}"] for name in schema.names)
    statement = SQL.letter_page.replace("{columns}", wanted)
    place, last = part.ranges
    while rows := database.rows(statement, (part.queue, *place, *last, batch_rows)):
        columns = zip(*rows, strict=True)
        arrays = [
            arrow.array(_values(field.name, column), type=field.type)
            for field, column in zip(schema, columns, strict=False)
        ]
        yield arrow.record_batch(arrays, schema=schema)
        place = rows[-1][-2:]


def _values(name: str, column: Sequence[Any]) -> Sequence[Any]:
    return [shapes.readable(one) for one in column] if name == "reason" else column
