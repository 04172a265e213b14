"""The caller's own transaction: a send on a connection that is not ours commits with the caller's writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from penstock.domain.errors import InvalidInput, StoreUnavailable
from penstock.domain.message import Draft
from penstock.domain.names import shown
from penstock.engines.postgres import sending, translating
from penstock.engines.postgres.arrays import register
from penstock.engines.postgres.connection import SQL as CONNECTION
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.sending import SQL

Outside = psycopg.Connection[Any] | psycopg.AsyncConnection[Any]
KINDS = (psycopg.Connection, psycopg.AsyncConnection)


def send(database: Database, queue: str, drafts: Sequence[Draft], salt: int, transaction: object) -> list[str]:
    """As one step of the caller's transaction: whole or not at all."""
    connection = _unwrapped(transaction)
    _check(connection, database)
    lanes = (queue, sorted({options.priority for _, _, options in drafts}))
    try:
        with _blocking(connection) as usable:
            caller = _Borrowed(usable)
            # Prepare in a transaction of our own: other senders must not wait for the caller's because it sent first.
            # The caller is asked before: for what its transaction has made itself we would wait in vain.
            if not caller.rows(SQL.is_prepared, lanes)[0][0]:
                database.rows(SQL.prepare, lanes)
            return sending.send(caller, queue, drafts, salt, notify=True)
    except psycopg.Error as error:
        raise _final(translating.translate(error, database.name)) from error


def _unwrapped(transaction: object) -> Outside:
    """A psycopg connection, or the one behind a connection or session of SQLAlchemy."""
    found: Any = getattr(transaction, "sync_connection", None) or transaction
    if not isinstance(found, KINDS) and callable(getattr(found, "in_transaction", None)):
        # SQLAlchemy does not see what is done on its driver's connection: a transaction it does not know of is undone.
        if not found.in_transaction():
            found.begin()
        found = found.connection
        # A session has a connection, which has the one of the pool.
        found = found().connection if callable(found) else found
    found = getattr(found, "driver_connection", found)
    if isinstance(found, KINDS):
        return found
    raise InvalidInput(
        "transaction must be an open psycopg or SQLAlchemy connection to the store's database, "
        f"not {shown(type(transaction).__name__)}"
    )


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
def _blocking(connection: Outside) -> Iterator[psycopg.Connection[Any]]:
    """The connection for blocking use. An asynchronous one is used through a second object on the same session, right
    here on its event loop: it is quick, because what takes long is the commit, and that is the caller's."""
    if isinstance(connection, psycopg.Connection):
        yield connection
        return
    if connection.lock.locked():
        raise InvalidInput("transaction: another task is using this connection")
    handlers = connection.pgconn.notice_handler, connection.pgconn.notify_handler
    try:
        twin = _Twin(connection.pgconn)
        twin._autocommit = connection.autocommit
        yield twin
    finally:
        connection.pgconn.notice_handler, connection.pgconn.notify_handler = handlers


class _Twin(psycopg.Connection[Any]):
    """Shares the session of an asynchronous connection, and must not complain when it goes: it is not its own."""

    def __del__(self, *_: Any) -> None:
        pass


class _Borrowed:
    """Runs statements on the caller's connection, undoing one that failed without ending the caller's transaction."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        register(connection)
        self._connection = connection

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        # No prepared statement: their names belong to the caller.
        with self._saved(), self._connection.cursor(binary=True, row_factory=tuple_row) as cursor:
            return cursor.execute(statement, parameters, prepare=False).fetchall()

    @contextmanager
    def _saved(self) -> Iterator[None]:
        connection = self._connection
        if connection.autocommit and connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            yield
            return
        if connection.pgconn.transaction_status == psycopg.pq.TransactionStatus.IDLE:
            # Otherwise the block below would be the whole transaction, and commit it.
            connection.execute(CONNECTION.begin_implicitly, prepare=False)
        with connection.transaction():
            yield


def _final(error: Exception) -> Exception:
    """A conflict with others cannot be repeated here: the transaction is the caller's."""
    if isinstance(error, translating.Conflict):
        return StoreUnavailable(f"{error}; roll the transaction back and try it again")
    return error
