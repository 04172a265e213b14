"""The log by position: reading, measuring and counting it."""

from __future__ import annotations

from penstock.domain.message import Message
from penstock.engines.postgres import shapes
from penstock.engines.postgres.caller import Caller
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/log.sql")


class LogView(Caller):
    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        rows = self._rows(SQL.browse, queue, after, upto, limit, backwards)
        return [shapes.message(row, queue) for row in rows]

    def position_at(self, queue: str, at: int) -> int:
        return int(self._value(SQL.position_at, at))

    def last_position(self, queue: str) -> int:
        return int(self._value(SQL.last_position))

    def unread(self, queue: str) -> int:
        return self._value(SQL.unread, queue) or 0

    def settled(self, queue: str) -> int:
        return int(self._value(SQL.settled, queue))

    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        return int(self._value(SQL.fitting, queue, group, limit, size))

    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        return [
            (position, at, size) for position, at, size in self._rows(SQL.places, queue, after, upto, limit, backwards)
        ]
