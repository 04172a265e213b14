"""Prepared writes: large parts of a sink go straight into the log, in a transaction that is prepared (PREPARE
TRANSACTION) and that the server keeps until somebody commits it or rolls it back.

A prepared write is registered before it is made, and a decision is stored before any prepared write is ended by it:
whoever finds one that was decided on and has not ended, the next attempt or a sweep, ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
from psycopg import Connection

from penstock.domain.errors import PenstockError, Refused
from penstock.domain.validation import shown
from penstock.engines.postgres import binary_rows
from penstock.engines.postgres.connection import SQL as CONNECTION
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.dumpers import Column
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/prepared_writes.sql")


class PreparedWrite:
    """One transaction that writes one part. Rows are encoded while the server receives the ones before them."""

    def __init__(self, database: Database, connection: Connection, queue: str, name: str) -> None:
        self._database = database
        self._connection = connection
        self._queue = queue
        self._name = name
        self._tx = 0
        self._priorities: set[int] = set()
        self._messages = 0
        self._copier = ThreadPoolExecutor(1, "penstock-copy")
        self._copy: Future[None] | None = None

    def begin(self) -> bool:
        """False when the server can keep no more prepared transactions."""
        self._run(CONNECTION.begin)
        self._run(SQL.wait_for_rows)
        [(has_place, tx)] = self._database.on(self._connection, SQL.reserve, (self._name,))
        self._tx = int(tx)
        return bool(has_place)

    def write(
        self, chunk: Column, longest: int, priority: int, kind: str | None, kinds: list[str | None] | None
    ) -> None:
        place = self._place(priority, len(chunk.items), longest)
        statement = SQL.copy.replace("{columns}", ", ".join(binary_rows.COLUMNS))
        rows = binary_rows.rows(place, chunk.items, kind, kinds)
        self._wait()
        self._copy = self._copier.submit(self._send, statement, rows)
        self._messages += len(chunk.items)

    def _place(self, priority: int, count: int, longest: int) -> binary_rows.Place:
        """In transactions of their own. Other senders to the lane would wait for the end of this transaction; and each
        commit flushes the WAL of what was copied before, which writers would otherwise do page by page when the buffers
        are full."""
        if priority not in self._priorities:
            self._database.rows(SQL.prepare, (self._queue, [priority]))
            self._priorities.add(priority)
        [found] = self._database.rows(SQL.reserve_positions, (self._queue, priority, count, longest))
        return binary_rows.Place(self._tx, *found)

    def _send(self, statement: str, rows: bytes) -> None:
        with self._database.translated(), self._connection.cursor().copy(statement) as copy:
            copy.write(rows)

    def _wait(self) -> None:
        """Wait until the server has received the rows of the last `write`."""
        if self._copy is not None:
            copy, self._copy = self._copy, None
            copy.result()

    def end(self) -> None:
        self._wait()
        self._run(SQL.prepare_transaction.replace("{name}", self._name))
        if not self._database.value(SQL.finish_prepared_write, (self._name, self._messages)):
            _end(self._database, self._name, "dropped")
            raise Refused(f"what was written to queue {shown(self._queue)} was given up meanwhile: write it again")

    def undo(self) -> None:
        with suppress(PenstockError):
            self._wait()
        if not self._connection.closed:
            self._run(CONNECTION.rollback)

    def close(self) -> None:
        self._copier.shutdown()

    def _run(self, statement: str) -> None:
        with self._database.translated():
            self._connection.execute(statement, prepare=False)


@contextmanager
def prepared(database: Database, queue: str, key: str, part: str) -> Iterator[PreparedWrite | None]:
    """A write for a part of a batch; None when the part has to be staged instead."""
    name = database.value(SQL.begin_prepared_write, (queue, key, part))
    if name is None:
        yield None
        return
    with database.connection() as connection:
        write = PreparedWrite(database, connection, queue, name)
        try:
            if write.begin():
                yield write
                write.end()
                return
            write.undo()
        except BaseException:
            write.undo()
            raise
        finally:
            write.close()
    database.rows(SQL.withdraw_prepared_write, (name,))
    yield None


def finish(database: Database, queue: str | None = None, key: str | None = None) -> None:
    """Commit or roll back the prepared writes that were decided on: those of a key, or all."""
    names = []
    for name, fate in database.rows(SQL.decided_prepared_writes, (queue, key)):
        _end(database, name, fate)
        names.append(name)
    if names:
        database.rows(SQL.forget_prepared_writes, (names,))


def _end(database: Database, name: str, fate: str) -> None:
    """A missing transaction was never prepared or has ended; one in use is being ended by another session."""
    statement = SQL.commit if fate == "kept" else SQL.rollback
    with (
        database.connection() as connection,
        database.translated(),
        suppress(psycopg.errors.UndefinedObject, psycopg.errors.ObjectInUse),
    ):
        connection.execute(statement.replace("{name}", name), prepare=False)
