"""One connection as a transaction uses it: it runs statements and returns the last result.

A connection of the pool sends several statements at once. The caller's own connection runs them one by one, because its
driver may not allow that."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.converters import conversions

from penstock.domain.errors import PayloadTooLarge
from penstock.engines.positional.database import ResultRow

# For each statement its rows, or None when it has no result, and the number of rows that it matched.
Results = list[tuple[list[ResultRow] | None, int]]
# Sums of integers are decimals: here they are integers again. A copy of the driver's own table otherwise.
CONVERSIONS: dict[Any, Any] = {**conversions, FIELD_TYPE.DECIMAL: int, FIELD_TYPE.NEWDECIMAL: int}
# Bytes of a packet besides the statement.
PACKET_MARGIN = 16
FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS


class Link(Protocol):
    def execute(self, statements: Sequence[str]) -> Results:
        """Run the statements."""


class PooledLink:
    """A connection of the pool, until the transaction ends."""

    def __init__(self, connection: pymysql.Connection[Any], max_packet: int) -> None:
        self.connection = connection
        self.max_packet = max_packet
        self.is_used = False

    def execute(self, statements: Sequence[str]) -> Results:
        results: Results = []
        packets = self._packets(statements)
        with self.connection.cursor() as cursor:
            for packet in packets:
                cursor.execute(packet)
                self.is_used = True
                while True:
                    rows = None if cursor.description is None else list(cursor.fetchall())
                    results.append((rows, cursor.rowcount))
                    if not cursor.nextset():
                        break
        return results

    def _packets(self, statements: Sequence[str]) -> list[str]:
        """The statements, as many at once as the server takes."""
        packets: list[str] = []
        together: list[str] = []
        size = 0
        for statement in statements:
            if len(statement) + PACKET_MARGIN > self.max_packet:
                raise PayloadTooLarge(
                    f"a message of {len(statement):,} bytes (payloads are sent as two bytes each) is larger than the "
                    f"server takes: max_allowed_packet is {self.max_packet:,}; raise it there"
                )
            size += len(statement) + 2
            if together and size + PACKET_MARGIN > self.max_packet:
                packets.append(";\n".join(together))
                together, size = [], len(statement) + 2
            together.append(statement)
        packets.append(";\n".join(together))
        return packets


class CallerLink:
    """The caller's connection, of any driver with the Python database interface."""

    def __init__(self, cursor: Callable[[], Any]) -> None:
        self._cursor = cursor

    def execute(self, statements: Sequence[str]) -> Results:
        results: Results = []
        cursor = self._cursor()
        try:
            for statement in statements:
                cursor.execute(statement)
                count = cursor.rowcount
                rows = None
                if cursor.description is not None:
                    rows = [tuple(map(_whole, row)) for row in cursor.fetchall()]
                results.append((rows, count))
        finally:
            cursor.close()
        return results


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value
