"""Windows, which streams read. A mark is a cursor as text, because sequences commit out of order: two snapshots, and a
place among the rows that the second shows and the first does not."""

from __future__ import annotations

from penstock.domain import refusals
from penstock.domain.errors import InvalidInput
from penstock.domain.results import Part
from penstock.domain.validation import shown
from penstock.engines.contract import Mark, Table
from penstock.engines.postgres.calls import Caller
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/windows.sql")
BEGINNING: Mark = 0


class PostgresWindows(Caller):
    def epoch(self) -> str:
        return f"{self._value(SQL.epoch):016x}"

    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        return BEGINNING if table == "dead_letters" else _mark(self._value(SQL.horizon, queue, table))

    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        return BEGINNING if table == "dead_letters" else _mark(self._value(SQL.earliest, queue, table))

    def mark_at(self, queue: str, at: int) -> Mark:
        return _mark(self._value(SQL.mark_at, queue, at))

    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        if size is not None and table != "messages":
            raise refusals.no_size(table)
        if (rows is None and size is None) or table == "dead_letters":
            return end
        return _mark(self._value(SQL.cut, queue, text_of(start), text_of(end), rows, size, table))

    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        """Each part has the places before its first row and of its last row."""
        with self._suggesting(queue):
            rows = self._rows(SQL.parts, queue, text_of(start), text_of(end), max(1, parts), table)
        pieces: list[Part] = []
        before = (0, 0)
        for count, is_counted, last_tx, last_position, *witness in rows:
            last = (last_tx, last_position)
            pieces.append(Part(queue, (before, last), count, table, start, end, is_counted, tuple(witness)))
            before = last
        return pieces

    def stream_position(self, queue: str, group: str) -> Mark | None:
        found = self._rows(SQL.stream_position, queue, group)
        return _mark(found[0][0]) if found and found[0][0] is not None else None

    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        self._rows(SQL.advance, queue, group, text_of(mark), table)

    def unread_after(self, queue: str) -> dict[str, int]:
        return dict(self._rows(SQL.unread_after, queue))


def text_of(mark: Mark) -> str:
    if isinstance(mark, str) or mark == BEGINNING:
        return str(mark)
    raise InvalidInput(f"{shown(mark)} is not a mark of this store: its marks are text, or 0 for the beginning")


def _mark(text: str | None) -> Mark:
    return BEGINNING if text is None or text == "0" else text
