"""One transaction on a connection of apsw."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import apsw

from penstock.engines.positional.database import Bindings
from penstock.engines.positional.dialect import engine_statements
from penstock.engines.sqlite.dialect import RULES

if TYPE_CHECKING:
    from penstock.engines.sqlite.connection import SqliteDatabase

SQL = engine_statements("penstock.engines.sqlite", RULES)
_TEXT = SQL.blocks


class SqliteTransaction:
    """`positional.database.Transaction` on SQLite."""

    __slots__ = ("_cursor", "_execute", "deaths", "now", "random", "salt", "time", "tokens")

    def __init__(self, database: SqliteDatabase, cursor: apsw.Cursor) -> None:
        self.now = self.time = database.clock()
        self.random = database.random
        self.salt = database.salt
        self.tokens = database.tokens
        self.deaths: list[str] = []
        # One cursor for all statements: each result is read to its end before the next statement runs.
        self._cursor = cursor
        self._execute = cursor.execute

    def run(self, statement: str, bindings: Bindings = ()) -> None:
        self._execute(_TEXT[statement], bindings)

    def run_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._cursor.executemany(_TEXT[statement], rows)

    def rows(self, statement: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        return self._execute(_TEXT[statement], bindings).fetchall()

    def row(self, statement: str, bindings: Bindings = ()) -> tuple[Any, ...] | None:
        rows = self._execute(_TEXT[statement], bindings).fetchall()
        return rows[0] if rows else None

    def value(self, statement: str, bindings: Bindings = ()) -> Any:
        rows = self._execute(_TEXT[statement], bindings).fetchall()
        return rows[0][0] if rows else None

    def changes(self, statement: str, bindings: Bindings = ()) -> int:
        self._execute(_TEXT[statement], bindings).fetchall()
        return self._cursor.connection.changes()

    def stream(self, statement: str, bindings: Bindings = ()) -> apsw.Cursor:
        return self._cursor.connection.execute(_TEXT[statement], bindings)

    def rows_of(self, statement: str, values: Sequence[int | str], bindings: dict[str, Any]) -> list[tuple[Any, ...]]:
        if not values:
            return []
        items: Any = values
        items = array("q", items) if isinstance(values[0], int) else tuple(items)
        return self.rows(statement, {**bindings, "values": apsw.carray(items)})

    def take_positions(self, queue_id: int, count: int) -> int:
        rows: list[Any] = self._execute(SQL.last_position).fetchall()
        last: int = rows[0][0]
        return last + 1

    def append_payloads(
        self, first: int, lane_id: int, content_type: str | None, expires_at: int | None, payloads: Sequence[bytes]
    ) -> None:
        """One statement over an array costs a third of one statement per message."""
        bindings = (first - 1, lane_id, self.now, content_type, expires_at, apsw.carray(payloads))
        self._execute(SQL.append_payloads, bindings)

    def add_run(self, lane_id: int, first: int, last: int) -> None:
        if not self.changes("lengthen_run", (last, lane_id, first - 1)):
            self.run("begin_run", {"lane_id": lane_id, "first": first, "last": last})

    def run_script(self, text: str) -> None:
        """The statements of a migration."""
        self._execute(text).fetchall()
