"""Sends on the caller's own connection, which commit with the caller's writes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown
from penstock.engines.caller_connection import driver_connection, driver_name
from penstock.engines.sqlite.transaction import SQL


def take_write_lock(connection: apsw.Connection) -> None:
    """Make the transaction a writer. One that has only read so far fails if another has written since."""
    if connection.txn_state("main") != apsw.SQLITE_TXN_WRITE:
        connection.execute(SQL.take_write_lock)


@contextmanager
def without_tracers(connection: apsw.Connection) -> Iterator[None]:
    """Suspend the row and statement tracers that the program may have set, such as rows as dictionaries."""
    row_trace, exec_trace = connection.row_trace, connection.exec_trace
    connection.row_trace = connection.exec_trace = None
    try:
        yield
    finally:
        connection.row_trace, connection.exec_trace = row_trace, exec_trace


def check_connection(transaction: object, path: str, in_memory: bool) -> apsw.Connection:
    """The apsw connection to this store's file, also behind SQLAlchemy or Django."""
    connection = driver_connection(transaction)
    if not isinstance(connection, apsw.Connection):
        raise InvalidInput(_why_not(connection, transaction))
    filename = connection.filename
    if in_memory or not filename or not os.path.samefile(filename, path):
        raise InvalidInput(f"transaction takes a connection to the store's own file {path}, not to {shown(filename)}")
    return connection


def _why_not(connection: object, transaction: object) -> str:
    driver = driver_name(connection)
    if driver not in _OTHER_SQLITES:
        return f"transaction takes an open apsw.Connection, not {shown(transaction)}"
    return (
        f"transaction takes an open apsw.Connection, and this is one of {driver}, which brings a second copy of SQLite "
        "into the process: file locks belong to a process, so the two copies do not see each other's locks and "
        "overwrite each other's commits. Open this file with apsw alone in this process; or keep the queue in a file "
        "of its own, commit the row first, and send with an id of the row (sending an id twice is one send)"
    )


_OTHER_SQLITES = ("sqlite3", "aiosqlite", "pysqlite3", "sqlcipher3")
