"""The log by position: reading, sizes and counting it."""

from __future__ import annotations

from penstock.domain.message import Message
from penstock.engines.sqlite import counting, looking, seeking, sizes, windows
from penstock.engines.sqlite.connection import Database


class LogView:
    database: Database

    def browse(self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False) -> list[Message]:
        with self.database.read() as transaction:
            return looking.browse(transaction, queue, after, upto, limit, backwards)

    def last_position(self, queue: str) -> int:
        with self.database.read() as transaction:
            return windows.last_position(transaction)

    def position_at(self, queue: str, at: int) -> int:
        with self.database.read() as transaction:
            return seeking.position_at(transaction, at)

    def unread(self, queue: str) -> int:
        with self.database.read() as transaction:
            return counting.unread(transaction, queue)

    def settled(self, queue: str) -> int:
        """One writer at a time: what is not there yet comes later."""
        return self.last_position(queue)

    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        with self.database.read() as transaction:
            return sizes.fitting(transaction, queue, group, limit, size)

    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        with self.database.read() as transaction:
            return sizes.places(transaction, queue, after, upto, limit, backwards)
