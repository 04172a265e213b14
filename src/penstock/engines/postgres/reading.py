"""The rows of a window as Arrow record batches, page by page: each page is a query of its own between two places, so
that no transaction stays open while the reader is busy with what it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import RangeTrimmed
from penstock.domain.observations import Part
from penstock.engines import tables
from penstock.engines.contract import Table
from penstock.engines.postgres import shapes
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.windows import SQL

if TYPE_CHECKING:
    import pyarrow

Place = tuple[int, int]


def read(
    database: Database, part: Part, batch_rows: int, columns: Sequence[str] | None
) -> Iterator[pyarrow.RecordBatch]:
    """What is asked for is checked at once, what is there is read as it is needed."""
    table = tables.check_table(part.table)
    return _read(database, part, table, batch_rows, tables.schema(table, columns))


def _read(
    database: Database, part: Part, table: Table, batch_rows: int, schema: pyarrow.Schema
) -> Iterator[pyarrow.RecordBatch]:
    wanted = ", ".join(_expression(table, name) for name in schema.names)
    pages = _messages if table == "messages" else _letters if table == "dead_letters" else _trail
    count = 0
    for rows in pages(database, part, wanted, batch_rows):
        if rows:
            count += len(rows)
            yield _batch(rows, schema)
    if count < part.count and table != "dead_letters":
        raise RangeTrimmed(
            f"only {count} of {part.count} rows of the {table} of queue {part.queue!r} are left: the others were "
            "removed meanwhile"
        )


def _expression(table: Table, column: str) -> str:
    letter = f"letter_{column}" if table == "dead_letters" else ""
    expression: str = SQL.blocks.get(letter) or SQL.blocks[f"column_{column}"]
    return expression


def _messages(database: Database, part: Part, wanted: str, batch_rows: int) -> Iterator[list[tuple[Any, ...]]]:
    before, last = part.ranges
    marks = (part.queue, str(part.start), str(part.end))
    statement = SQL.message_page.replace("{columns}", wanted)
    for page in database.rows(SQL.message_pages, (*marks, *_place(before), *_place(last), batch_rows)):
        yield database.rows(statement, (*marks, *_place(before), *_place(page)))
        before = page


def _place(place: Sequence[int]) -> tuple[str, int]:
    """A transaction number has 64 bits without a sign: it travels as text."""
    return str(place[0]), place[1]


def _trail(database: Database, part: Part, wanted: str, batch_rows: int) -> Iterator[list[tuple[Any, ...]]]:
    """Entries are numbered: from the one after the last of the part before, to its own last."""
    (first, _), (last, _) = part.ranges
    marks = (part.queue, str(part.start), str(part.end), part.table == "archive")
    statement = SQL.trail_page.replace("{columns}", wanted)
    place: Place = (first, 1 << 62)
    while rows := database.rows(statement, (*marks, first + 1, last, *place, batch_rows)):
        yield rows
        place = rows[-1][-2:]


def _letters(database: Database, part: Part, wanted: str, batch_rows: int) -> Iterator[list[tuple[Any, ...]]]:
    place, last = part.ranges
    statement = SQL.letter_page.replace("{columns}", wanted)
    while rows := database.rows(statement, (part.queue, *place, *last, batch_rows)):
        yield rows
        place = rows[-1][-2:]


def _batch(rows: list[tuple[Any, ...]], schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    arrow = tables.pyarrow_module()
    columns = list(zip(*rows, strict=True))
    arrays = [
        arrow.array(_values(field.name, column), type=field.type)
        for field, column in zip(schema, columns, strict=False)
    ]
    return arrow.record_batch(arrays, schema=schema)


def _values(name: str, column: Sequence[Any]) -> Sequence[Any]:
    return [shapes.readable(one) for one in column] if name == "reason" else column
