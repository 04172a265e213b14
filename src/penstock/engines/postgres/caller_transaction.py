"""The caller's own transaction: a send on a connection that is not ours commits with the caller's writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.adapt import AdaptersMap
from psycopg.rows import tuple_row

from penstock.domain.errors import InvalidInput, StoreUnavailable
from penstock.domain.message import Draft
from penstock.domain.validation import shown
from penstock.engines.caller_connection import LockedConnection, driver_connection, driver_name
from penstock.engines.postgres import errors as server_errors
from penstock.engines.postgres import messages
from penstock.engines.postgres.calls import SQL
from penstock.engines.postgres.connection import SQL as CONNECTION
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.dumpers import register

Outside = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
KINDS = (psycopg.Connection, psycopg.AsyncConnection)


def send(database: Database, queue: str, drafts: Sequence[Draft], salt: int, transaction: object) -> list[str]:
    """Send as one step of the caller's transaction, atomically."""
    is_held = isinstance(transaction, LockedConnection)
    connection = _usable(transaction[0] if isinstance(transaction, LockedConnection) else transaction)
    _check(connection, database)
    lanes = (queue, sorted({options.priority for _, _, options in drafts}))
    try:
        with _blocking(connection, is_held) as usable:
            caller = _Borrowed(usable)
            # Prepare in a transaction of our own: other senders must not wait for the caller's because it sent first.
            # Ask the caller's connection first: we would wait in vain for rows that its own transaction created.
            if not caller.rows(SQL.is_prepared, lanes)[0][0]:
                database.rows(SQL.prepare_briefly, lanes)
            return messages.send(caller, queue, drafts, salt, notify=True)
    except psycopg.Error as error:
        raise _final(server_errors.translate(error, database.name)) from error


def _usable(transaction: object) -> Outside:
    """The psycopg connection of the caller, however its framework wraps it."""
    found = driver_connection(transaction)
    if isinstance(found, KINDS):
        return found
    driver = driver_name(found)
    if driver in _OTHER_DRIVERS:
        raise InvalidInput(
            f"transaction: this is a connection of {driver}, and a send needs one of psycopg 3: "
            f"{_OTHER_DRIVERS[driver]}"
        )
    raise InvalidInput(
        "transaction must be an open connection to the store's database: psycopg's, django.db.connection, or a "
        f"connection or session of SQLAlchemy on psycopg, not {shown(type(transaction).__name__)}"
    )


_OTHER_DRIVERS = {
    "psycopg2": "use psycopg (SQLAlchemy: postgresql+psycopg://; Django prefers it where it is installed), "
    "or run `select penstock.send(%s, %s)` with the queue and the JSON payload on this connection",
    "asyncpg": "use psycopg's AsyncConnection (SQLAlchemy: postgresql+psycopg://), "
    "or run `select penstock.send($1, $2)` with the queue and the JSON payload on this connection",
}


def _check(connection: Outside, database: Database) -> None:
    if connection.closed:
        raise InvalidInput("transaction: this connection is closed")
    here = psycopg.conninfo.conninfo_to_dict(database.url).get("dbname")
    if here is not None and connection.info.dbname != here:
        raise InvalidInput(
            f"transaction: this connection is to database {shown(connection.info.dbname)}, the store is {database.name}"
        )
    if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.INERROR:
        raise InvalidInput("transaction: an earlier statement of it failed; roll it back first")


@contextmanager
def _blocking(connection: Outside, is_held: bool) -> Iterator[psycopg.Connection[Any]]:
    """The connection for blocking use. An asynchronous one is used through a second object on the same session."""
    if isinstance(connection, psycopg.Connection):
        yield connection
        return
    if connection.lock.locked() and not is_held:
        raise InvalidInput("transaction: another task is using this connection")
    handlers = connection.pgconn.notice_handler, connection.pgconn.notify_handler
    try:
        twin = _Twin(connection.pgconn)
        twin._autocommit = connection.autocommit
        yield twin
    finally:
        connection.pgconn.notice_handler, connection.pgconn.notify_handler = handlers


class _Twin(psycopg.Connection[Any]):
    """Shares the session of an asynchronous connection, so it does not warn when it is collected unclosed."""

    def __del__(self, *_: Any) -> None:
        pass


class _Borrowed:
    """Runs statements on the caller's connection, undoing one that failed without ending the caller's transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with self._saved():
            return self._execute(statement, parameters)

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with _Cursor(self._connection, row_factory=tuple_row) as cursor:
            # No prepared statement: their names belong to the caller.
            return cursor.execute(statement, parameters, prepare=False, binary=True).fetchall()

    @contextmanager
    def _saved(self) -> Iterator[None]:
        connection = self._connection
        if connection.autocommit and connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            yield
            return
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            # Otherwise the block below would be the whole transaction, and commit it.
            self._execute(CONNECTION.begin_implicitly)
        with connection.transaction():
            yield


class _Cursor(psycopg.Cursor[tuple[Any, ...]]):
    """Binds on the server and adapts values in our way, whatever cursor class and adapters the caller's connection
    has: Django's cursors bind on the client and leave JSON as text."""

    @property
    def adapters(self) -> AdaptersMap:
        return _ADAPTERS


_ADAPTERS = AdaptersMap(psycopg.adapters)
register(_ADAPTERS)


def _final(error: Exception) -> Exception:
    """Only the caller can repeat its transaction after a conflict."""
    if isinstance(error, server_errors.Conflict):
        return StoreUnavailable(f"{error}; roll the transaction back and try it again")
    return error
