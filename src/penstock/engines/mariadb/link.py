"""One connection as a transaction uses it: it runs statements and returns the last result.

A connection of the pool sends several statements at once. The caller's own connection runs them one by one, because its
driver may not allow that."""

from __future__ import annotations

import select
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Protocol

import pymysql
from pymysql.constants import CLIENT, FIELD_TYPE
from pymysql.converters import conversions
from pymysql.cursors import Cursor

from penstock.domain.errors import PayloadTooLarge
from penstock.engines.mariadb.literals import PreparedBlock, Template
from penstock.engines.positional.database import ResultRow

# For each statement its rows, or None when it has no result, and the number of rows that it matched.
Results = list[tuple[list[ResultRow] | None, int]]
# Sums of integers are decimals: here they are integers again. A copy of the driver's own table otherwise.
CONVERSIONS: dict[Any, Any] = {**conversions, FIELD_TYPE.DECIMAL: int, FIELD_TYPE.NEWDECIMAL: int}
# Bytes of a packet besides the statement.
PACKET_MARGIN = 64
# So many statements are sent one by one; more of them as a compound statement.
LEAST_COMPOUND = 2
JOINT = ";\n"
# Errors of a server that prepares no compound statements, and of one that prepares no more statements.
NOT_PREPARED = (1295, 1461)
# How statements begin that answer with rows.
ANSWERED = ("select", "show", "(", "with")
FLAGS = CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS


class Link(Protocol):
    def execute(self, statements: Sequence[str]) -> Results:
        """Run the statements."""

    def run_block(self, block: Template | PreparedBlock, packet: str) -> Results | None:
        """Run a compound statement, rendered as a packet, inside the transaction; None when it cannot be run here."""


class PooledLink:
    """A connection of the pool, until the transaction ends."""

    def __init__(self, connection: pymysql.Connection[Any], max_packet: int, descriptor: int) -> None:
        self.connection = connection
        self.max_packet = max_packet
        self.descriptor = descriptor
        self.is_used = False
        self._prepared: set[str] = set()
        # Of a packet whose last answer, that of a commit, has not been read.
        self.unfinished: Cursor | None = None
        # Whether the server takes compound statements (MariaDB does).
        self.has_compounds = False

    def become(self, other: PooledLink) -> None:
        """Use the connection of another link."""
        self.__dict__.update(other.__dict__)

    def execute(self, statements: Sequence[str]) -> Results:
        results: Results = []
        for together in self._packets(statements):
            results += self._execute_together(together)
        return results

    def _execute_together(self, statements: list[str]) -> Results:
        """One packet. All statements but the last are one compound statement, which answers with their result sets and
        nothing else: an answer to each costs both sides more than the statement (docs/decisions/0335)."""
        if self.has_compounds and len(statements) > LEAST_COMPOUND:
            block = f"begin not atomic {JOINT.join(statements[:-1])};\nend;\n{statements[-1]}"
            answers = iter(self.execute_packet(block))
            results: Results = [next(answers) if _has_rows(one) else (None, 0) for one in statements[:-1]]
            # The compound statement's own answer, and that of the last statement.
            return results + list(answers)[1:]
        return self.execute_packet(JOINT.join(statements))

    def run_block(self, block: Template | PreparedBlock, packet: str, awaits_commit: bool = True) -> Results | None:
        if not self.fits(packet) or not self.can_run(block):
            return None
        return self.execute_packet(packet, awaits_commit)

    def has_ended(self) -> bool:
        """Whether the server has closed the connection: it says nothing unasked before that."""
        ready = select.poll()
        ready.register(self.descriptor, select.POLLIN)
        return bool(ready.poll(0))

    def fits(self, packet: str) -> bool:
        return len(packet) + PACKET_MARGIN <= self.max_packet

    def can_run(self, block: Template | PreparedBlock) -> bool:
        """Whether the server takes compound statements, and this one prepared, if it is to be."""
        if not self.has_compounds or not isinstance(block, PreparedBlock) or block.name in self._prepared:
            return self.has_compounds
        try:
            self.execute_packet(block.preparation)
        except pymysql.MySQLError as error:
            if error.args[0] not in NOT_PREPARED:
                raise
            return False
        self._prepared.add(block.name)
        return True

    def execute_packet(self, packet: str, awaits_commit: bool = True) -> Results:
        """The answers to a packet. Without `awaits_commit`, those before the answer to its last statement, a commit,
        which `finish` reads later."""
        answers: Results = []
        cursor = self.connection.cursor()
        cursor.execute(packet)
        self.is_used = True
        while True:
            rows = None if cursor.description is None else list(cursor.fetchall())
            answers.append((rows, cursor.rowcount))
            if not awaits_commit and rows is None and len(answers) > 1:
                self.unfinished = cursor
                return answers
            if not cursor.nextset():
                cursor.close()
                return answers

    @property
    def is_finished(self) -> bool:
        return self.unfinished is None

    def finish(self) -> None:
        """Read what the server has still to answer."""
        cursor, self.unfinished = self.unfinished, None
        if cursor is not None:
            cursor.close()

    def _packets(self, statements: Sequence[str]) -> list[list[str]]:
        """The statements, as many at once as the server takes."""
        packets: list[list[str]] = []
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
                packets.append(together)
                together, size = [], len(statement) + 2
            together.append(statement)
        packets.append(together)
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

    def run_block(self, block: Template | PreparedBlock, packet: str) -> Results | None:
        return None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, Decimal) else value


def _has_rows(statement: str) -> bool:
    return statement.startswith(ANSWERED)
