"""Windows, which streams read. A mark is a cursor as text, because sequences commit out of order: two snapshots, and a
place among the rows that the second shows and the first does not."""

from __future__ import annotations

from penstock.domain.errors import InvalidInput
from penstock.domain.results import Part
from penstock.domain.validation import shown
from penstock.engines.contract import Mark, Table
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/windows.sql")
BEGINNING: Mark = 0


def horizon(database: Database, queue: str, table: Table) -> Mark:
    return BEGINNING if table == "dead_letters" else _mark(database.value(SQL.horizon, (queue, table)))


def earliest(database: Database, queue: str, table: Table) -> Mark:
    return BEGINNING if table == "dead_letters" else _mark(database.value(SQL.earliest, (queue, table)))


def mark_at(database: Database, queue: str, at: int) -> Mark:
    return _mark(database.value(SQL.mark_at, (queue, at)))


def _mark(text: str | None) -> Mark:
    return BEGINNING if text is None or text == "0" else text


def text_of(mark: Mark) -> str:
    if isinstance(mark, str) or mark == BEGINNING:
        return str(mark)
    raise InvalidInput(f"{shown(mark)} is not a mark of this store: its marks are text, or 0 for the beginning")


def cut(
    database: Database, queue: str, start: Mark, end: Mark, rows: int | None, size: int | None, table: Table
) -> Mark:
    if size is not None and table != "messages":
        raise InvalidInput(f"{table} has no size: limit it by rows")
    if (rows is None and size is None) or table == "dead_letters":
        return end
    return _mark(database.value(SQL.cut, (queue, text_of(start), text_of(end), rows, size, table)))


def window(database: Database, queue: str, start: Mark, end: Mark, parts: int, table: Table) -> list[Part]:
    """Each part knows the places before its first and of its last row."""
    rows = database.rows(SQL.parts, (queue, text_of(start), text_of(end), max(1, parts), table))
    pieces: list[Part] = []
    before = (0, 0)
    for count, is_counted, last_tx, last_position, *witness in rows:
        last = (last_tx, last_position)
        pieces.append(Part(queue, (before, last), count, table, start, end, is_counted, tuple(witness)))
        before = last
    return pieces


def stream_position(database: Database, queue: str, group: str) -> Mark | None:
    text = database.value(SQL.stream_position, (queue, group))
    return None if text is None else _mark(text)


def advance(database: Database, queue: str, group: str, mark: Mark, table: Table) -> None:
    database.rows(SQL.advance, (queue, group, text_of(mark), table))
