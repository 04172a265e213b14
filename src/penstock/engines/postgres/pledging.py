"""Large parts of a sink go straight into the log, written by a transaction that is pledged (PREPARE TRANSACTION): the
server keeps it, whatever dies, until it is told to keep or to drop what it wrote.

First the pledge is written down, then it is made. A decision is written down before any pledge is ended by it: whoever
finds one that was decided on and not ended, the next try or a sweep, ends it.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

import psycopg
from psycopg import Connection

from penstock.domain.errors import PenstockError, Refused
from penstock.domain.names import shown
from penstock.engines.postgres import copying
from penstock.engines.postgres.arrays import Column
from penstock.engines.postgres.connection import SQL as CONNECTION
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/pledges.sql")


class Pledge:
    """One transaction that writes one part. While the server takes in some of its rows, the next are made ready."""

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
        """False when the server has no place for another one."""
        self._run(CONNECTION.begin)
        self._run(SQL.wait_for_rows)
        [(has_place, tx)] = self._database.on(self._connection, SQL.take_place, (self._name,))
        self._tx = int(tx)
        return bool(has_place)

    def write(
        self, chunk: Column, longest: int, priority: int, kind: str | None, kinds: list[str | None] | None
    ) -> None:
        place = self._place(priority, len(chunk.items), longest)
        statement = SQL.copy.replace("{columns}", ", ".join(copying.COLUMNS))
        rows = copying.rows(place, chunk.items, kind, kinds)
        self._wait()
        self._copy = self._copier.submit(self._send, statement, rows)
        self._messages += len(chunk.items)

    def _place(self, priority: int, count: int, longest: int) -> copying.Place:
        """In transactions of their own. Others who need the lane would have to wait for the end of this one; and each
        commit brings to the disk in one go what was copied before, which the server would else do page by page when
        its buffers are full, while those who write wait."""
        if priority not in self._priorities:
            self._database.rows(SQL.prepare_lane, (self._queue, [priority]))
            self._priorities.add(priority)
        [found] = self._database.rows(SQL.take_positions, (self._queue, priority, count, longest))
        return copying.Place(self._tx, *found)

    def _send(self, statement: str, rows: bytes) -> None:
        with self._database.translated(), self._connection.cursor().copy(statement) as copy:
            copy.write(rows)

    def _wait(self) -> None:
        """Until the server has what it was sent."""
        if self._copy is not None:
            copy, self._copy = self._copy, None
            copy.result()

    def end(self) -> None:
        self._wait()
        self._run(SQL.pledge.replace("{name}", self._name))
        if not self._database.value(SQL.end_pledge, (self._name, self._messages)):
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
def pledged(database: Database, queue: str, key: str, part: str) -> Iterator[Pledge | None]:
    """None when the part has to be put aside instead."""
    name = database.value(SQL.begin_pledge, (queue, key, part))
    if name is None:
        yield None
        return
    with database.connection() as connection:
        pledge = Pledge(database, connection, queue, name)
        try:
            if pledge.begin():
                yield pledge
                pledge.end()
                return
            pledge.undo()
        except BaseException:
            pledge.undo()
            raise
        finally:
            pledge.close()
    database.rows(SQL.withdraw_pledge, (name,))
    yield None


def finish(database: Database, queue: str | None = None, key: str | None = None) -> None:
    """Do with pledges what was decided: with those of a key, or with all."""
    names = []
    for name, fate in database.rows(SQL.decided_pledges, (queue, key)):
        _end(database, name, fate)
        names.append(name)
    if names:
        database.rows(SQL.forget_pledges, (names,))


def _end(database: Database, name: str, fate: str) -> None:
    """One that is not there was never made or has ended; one that is busy is being ended by somebody else."""
    statement = SQL.keep if fate == "kept" else SQL.drop
    with (
        database.connection() as connection,
        database.translated(),
        suppress(psycopg.errors.UndefinedObject, psycopg.errors.ObjectInUse),
    ):
        connection.execute(statement.replace("{name}", name), prepare=False)
