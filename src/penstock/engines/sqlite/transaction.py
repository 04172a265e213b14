"""What a verb works with: one connection inside a transaction, and one moment for all of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import apsw

Bindings = dict[str, Any] | tuple[Any, ...]


class Tokens:
    """The latest token that this process knows of."""

    __slots__ = ("latest",)

    def __init__(self) -> None:
        self.latest = 0

    def seen(self, token: int) -> None:
        self.latest = max(self.latest, token)

    def next(self, least: int) -> int:
        self.latest = max(self.latest + 1, least)
        return self.latest


class Transaction:
    __slots__ = ("_cursor", "_execute", "deaths", "now", "random", "salt", "tokens")

    def __init__(self, cursor: apsw.Cursor, now: int, random: Callable[[], float], salt: int, tokens: Tokens) -> None:
        self.now = now
        self.random = random
        self.salt = salt
        self.tokens = tokens
        self.deaths: list[str] = []  # dead letters, to be signalled once they are committed
        # One cursor for all statements: each is read to its end before the next, and making one costs time too.
        self._cursor = cursor
        self._execute = cursor.execute

    @property
    def connection(self) -> apsw.Connection:
        """For statements whose rows are read one by one, beside others."""
        return self._cursor.connection

    def run(self, statement: str, bindings: Bindings = ()) -> None:
        self._execute(statement, bindings)

    def run_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        self._cursor.executemany(statement, rows)

    def rows(self, statement: str, bindings: Bindings = ()) -> list[tuple[Any, ...]]:
        return self._execute(statement, bindings).fetchall()

    def row(self, statement: str, bindings: Bindings = ()) -> tuple[Any, ...] | None:
        rows = self._execute(statement, bindings).fetchall()
        return rows[0] if rows else None

    def value(self, statement: str, bindings: Bindings = ()) -> Any:
        rows = self._execute(statement, bindings).fetchall()
        return rows[0][0] if rows else None

    def changes(self, statement: str, bindings: Bindings = ()) -> int:
        """Run it, and count the rows it changed."""
        self._execute(statement, bindings).fetchall()
        return self.connection.changes()
