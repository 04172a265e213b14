"""What only Redis Streams need: taking leases over, reading by position, and sizes of messages."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.engines.contract import Receipt
from penstock.engines.postgres.calls import SQL
from penstock.engines.postgres.deliveries import PostgresDeliveries


class PostgresStreams(PostgresDeliveries):
    def clear(self, queue: str) -> bool:
        return bool(self._changed(SQL.clear, queue))

    def take_over(
        self,
        queue: str,
        group: str,
        consumer: str,
        ids: Sequence[str],
        lease_seconds: float,
        counts: bool = True,
        force: bool = False,
    ) -> Receipt:
        with self._suggesting(queue):
            found = self._rows(SQL.take_over_leases, queue, group, consumer, list(ids), lease_seconds, counts, force)
        return self._receipt(queue, consumer, found)

    def reached(self, queue: str, group: str) -> int:
        return int(self._value(SQL.reached, queue, group))

    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        return int(self._value(SQL.fitting, queue, group, limit, size))

    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        return [
            (position, at, size) for position, at, size in self._rows(SQL.places, queue, after, upto, limit, backwards)
        ]

    def settled(self, queue: str) -> int:
        return int(self._value(SQL.settled, queue))
