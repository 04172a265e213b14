"""The caller's own connection: a send that commits with the caller's writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from penstock.domain.errors import InvalidInput
from penstock.domain.names import shown
from penstock.engines.sqlite.connection import SQL, Database


def take_write_lock(connection: apsw.Connection) -> None:
    """A transaction that has done nothing yet begins as a writer. One that has read may still find itself too late."""
    if connection.txn_state("main") != apsw.SQLITE_TXN_WRITE:
        connection.execute(SQL.take_write_lock)


@contextmanager
def without_habits(connection: apsw.Connection) -> Iterator[None]:
    """A program may see its rows as dictionaries, or trace its statements; here they are plain again for a while."""
    row_trace, exec_trace = connection.row_trace, connection.exec_trace
    connection.row_trace = connection.exec_trace = None
    try:
        yield
    finally:
        connection.row_trace, connection.exec_trace = row_trace, exec_trace


def check_connection(connection: object, database: Database) -> apsw.Connection:
    """An apsw connection to this store's file: two builds of SQLite must never share one, so no other driver does."""
    if not isinstance(connection, apsw.Connection):
        raise InvalidInput(f"transaction takes an open apsw.Connection, not {shown(connection)}")
    filename = connection.filename
    if database.in_memory or not filename or not os.path.samefile(filename, database.path):
        raise InvalidInput(
            f"transaction takes a connection to the store's own file {database.path}, not to {shown(filename)}"
        )
    return connection
