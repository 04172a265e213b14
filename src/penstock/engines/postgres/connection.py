"""The connection to the server: pool, transactions, and the translation of errors.

A verb is one statement, so one round trip and its own transaction. Connections are kept in a pool and checked before
use, so that clients recover by themselves after a restart of the server.
"""

from __future__ import annotations

import logging
import os
import select
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from weakref import WeakSet

import psycopg
from psycopg import Connection
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from penstock.domain import errors
from penstock.engines.postgres import errors as server_errors
from penstock.engines.postgres import prepared_statements
from penstock.engines.postgres.dumpers import register
from penstock.engines.postgres.prepared_statements import Rows
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/connection.sql")
logger = logging.getLogger("penstock.dead_letters")
# The pool logs every attempt to connect; our errors report the same.
logging.getLogger("psycopg.pool").addHandler(logging.NullHandler())
# How often a call is repeated after a deadlock or a serialization failure, which undid it.
ATTEMPTS = 5
DEAD_LETTER = "PN900"

Clock = Callable[[], int]
Random = Callable[[], float]


class TransactionAborted(Exception):
    """A statement failed in a transaction without savepoints. Not a PenstockError, because a caller that handles one
    would go on in the aborted transaction."""


class Database:
    def __init__(
        self,
        url: str,
        clock: Clock | None,
        random: Random | None,
        pool_size: int,
        busy_seconds: float,
        prepare: bool,
        pool: ConnectionPool[Any] | None = None,
    ) -> None:
        self.url = url
        self._given = pool
        self.clock = clock
        self.random = random
        self.busy_seconds = busy_seconds
        self.prepare = prepare
        self.pool_size = pool_size
        self.name = _shown_name(url)
        # Idle connections of the ADBC driver.
        self.waiting: list[Any] = []
        self._local = threading.local()
        self._closed = False
        self._open()

    # -- calls -----------------------------------------------------------------------------------------------------

    def rows(self, statement: str, parameters: Sequence[Any] = ()) -> Rows:
        """Run one statement: in a transaction of its own, or in the open one of this thread."""
        current: Connection | None = getattr(self._local, "connection", None)
        if current is not None:
            return self._part(current, statement, parameters)
        rows: Rows = self._repeated(lambda connection: self._execute(connection, statement, parameters))
        return rows

    def on(self, connection: Connection, statement: str, parameters: Sequence[Any] = ()) -> Rows:
        """Run one statement on a connection whose transaction the caller controls."""
        return self._execute(connection, statement, parameters, is_repeatable=False)

    def script(self, text: str) -> None:
        """Run several statements at once, without parameters, in the open transaction of this thread."""
        with self.translated():
            self._local.connection.execute(text, prepare=False)

    def row(self, statement: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        rows = self.rows(statement, parameters)
        return rows[0] if rows else None

    def value(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        rows = self.rows(statement, parameters)
        return rows[0][0] if rows else None

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """A transaction for several statements; within an open one it joins that."""
        if self.is_inside:
            yield
            return
        try:
            with self.connection() as connection, self._within(connection):
                yield
        except server_errors.Conflict as conflict:
            raise self._undone(conflict) from conflict

    def together(self, operations: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run operations in one transaction. The first attempt uses no savepoints, which cost two round trips each; if
        an operation fails, all of it is rolled back and repeated with savepoints."""
        if self.is_inside:
            return self._nested(operations)
        results: list[Any]
        try:
            results = self._repeated(lambda connection: self._together(connection, operations, savepoints=False))
        except errors.StoreError:
            raise
        except (errors.PenstockError, TransactionAborted):
            results = self._repeated(lambda connection: self._together(connection, operations, savepoints=True))
        return results

    def _together(self, connection: Connection, operations: Sequence[Callable[[], Any]], savepoints: bool) -> list[Any]:
        with self._within(connection, savepoints):
            if not savepoints:
                return [operation() for operation in operations]
            return [self._outcome(connection, operation) for operation in operations]

    def _nested(self, operations: Sequence[Callable[[], Any]]) -> list[Any]:
        """Run operations in the open transaction of this thread. On another connection they could wait for a lock of
        that transaction, which would never be released."""
        if self._local.savepoints is False:
            raise TransactionAborted
        connection = self._local.connection
        self._control(connection, SQL.savepoint)
        try:
            results = [self._outcome(connection, operation) for operation in operations]
        except errors.StoreError:
            raise
        except BaseException:
            self._control(connection, SQL.rollback_to)
            self._control(connection, SQL.release)
            raise
        self._control(connection, SQL.release)
        return results

    def _outcome(self, connection: Connection, operation: Callable[[], Any]) -> Any:
        try:
            with self._savepoint(connection):
                return operation()
        except errors.StoreError:
            raise  # the whole transaction is undone
        except errors.PenstockError as error:
            return error

    def _part(self, connection: Connection, statement: str, parameters: Sequence[Any]) -> Rows:
        """Run one statement of an operation. An operation may handle an error and go on, so with savepoints the
        transaction survives it."""
        if self._local.savepoints:
            with self._savepoint(connection):
                return self._execute(connection, statement, parameters)
        try:
            return self._execute(connection, statement, parameters, is_repeatable=self._local.savepoints is False)
        except errors.StoreError:
            raise
        except errors.PenstockError as error:
            if self._local.savepoints is False:
                raise TransactionAborted from error
            raise

    @contextmanager
    def _savepoint(self, connection: Connection) -> Iterator[None]:
        self._control(connection, SQL.savepoint)
        try:
            yield
        except errors.StoreError:
            raise
        except errors.PenstockError:
            self._control(connection, SQL.rollback_to)
            raise
        finally:
            if connection.info.transaction_status == TransactionStatus.INTRANS:
                self._control(connection, SQL.release)

    @contextmanager
    def _within(self, connection: Connection, savepoints: bool | None = None) -> Iterator[None]:
        self._control(connection, SQL.begin)
        self._local.connection = connection
        self._local.savepoints = savepoints
        try:
            yield
        except BaseException:
            if not connection.closed:
                self._control(connection, SQL.rollback)
            raise
        else:
            self._control(connection, SQL.commit)
        finally:
            self._local.connection = None

    def _control(self, connection: Connection, statement: str) -> None:
        """Begin or end a transaction or a savepoint. The connection may be lost here as anywhere else."""
        with self.translated():
            connection.execute(statement, prepare=False)

    @property
    def is_inside(self) -> bool:
        return getattr(self._local, "connection", None) is not None

    def _repeated(self, operation: Callable[[Connection], Any]) -> Any:
        # Not with self.connection(): entering and leaving a generator takes a tenth of the client's part of a call.
        connection = self._take()
        try:
            for attempt in range(ATTEMPTS):
                try:
                    return operation(connection)
                except server_errors.Conflict as conflict:
                    if attempt == ATTEMPTS - 1:
                        raise self._undone(conflict) from conflict
        finally:
            self._pool.putconn(connection)
        raise AssertionError

    def _undone(self, conflict: server_errors.Conflict) -> errors.StoreUnavailable:
        return errors.StoreUnavailable(f"{self.name}: {conflict}; nothing was changed")

    def _execute(
        self, connection: Connection, statement: str, parameters: Sequence[Any], is_repeatable: bool = True
    ) -> Rows:
        """A prepared statement that the session does not have aborts the transaction, so names are used only where it
        is repeated."""
        try:
            if self.clock is not None or self.random is not None:
                connection.execute(SQL.inject, (self._now_text(), self._random_text()), prepare=False)
            return prepared_statements.rows(connection, statement, parameters, has_name=self.prepare and is_repeatable)
        except psycopg.Error as error:
            raise server_errors.translate(error, self.name) from error

    def _now_text(self) -> str:
        return "" if self.clock is None else str(self.clock())

    def _random_text(self) -> str:
        return "" if self.random is None else repr(self.random())

    # -- connections -----------------------------------------------------------------------------------------------

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        connection = self._take()
        try:
            yield connection
        finally:
            self._pool.putconn(connection)

    def _take(self) -> Connection:
        """A connection of the pool, to be put back."""
        self._check_process()
        try:
            connection: Connection = self._pool.getconn()
        except PoolClosed:
            raise errors.StoreUnavailable(f"{self.name}: this store was closed") from None
        except PoolTimeout:
            raise self._unreachable() from None
        try:
            if self._given is not None:
                _adopt(connection)
        except BaseException:
            self._pool.putconn(connection)
            raise
        return connection

    def connect(self) -> Connection:
        """A connection outside the pool."""
        try:
            connection = psycopg.connect(self.url, **self._options())
        except psycopg.Error as error:
            raise server_errors.unreachable(error, self.name) from error
        register(connection.adapters)
        return connection

    def _options(self) -> dict[str, Any]:
        """psycopg numbers its prepared statements, and behind a pooler other clients use the same numbers: it prepares
        none."""
        return {"autocommit": True, "prepare_threshold": None, "connect_timeout": max(2, round(self.busy_seconds))}

    def probe(self) -> None:
        """Connect once outside the pool, because the pool reports only a timeout and not why it could not connect."""
        if self._given is None:
            self.connect().close()

    def _unreachable(self) -> errors.PenstockError:
        """The reason for a timeout of the pool, which does not report it."""
        try:
            self.connect().close()
        except errors.PenstockError as error:
            return error
        return errors.StoreUnavailable(
            f"{self.name}: all {self.pool_size} connections were busy for {self.busy_seconds:g} s; raise pool_size"
        )

    def _open(self) -> None:
        self._process = os.getpid()
        if self._given is not None:
            self._pool: ConnectionPool[Any] = self._given
            return
        self._pool = ConnectionPool(
            self.url,
            min_size=0,
            max_size=self.pool_size,
            open=True,
            timeout=self.busy_seconds,
            num_workers=1,
            kwargs=self._options(),
            configure=_configure,
            check=_check_alive,
            reconnect_timeout=self.busy_seconds,
        )

    def close(self) -> None:
        if self._process == os.getpid():
            if self._given is None:
                self._pool.close()
            while self.waiting:
                self.waiting.pop().close()
        self._closed = True

    def _check_process(self) -> None:
        """After a fork, open a pool of the child's own and leave the parent's connections alone."""
        if self._closed:
            raise errors.StoreUnavailable(f"{self.name}: this store was closed")
        if self._process != os.getpid():
            _inherited.extend((self._pool, self.waiting))
            self.waiting = []
            self._given = None
            self._open()

    # -- errors ----------------------------------------------------------------------------------------------------

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise server_errors.translate(error, self.name) from error


# Pools of a parent process. Closing them in the child would end the parent's sessions, so they are kept unused.
_inherited: list[Any] = []


def _configure(connection: Connection) -> None:
    register(connection.adapters)
    connection.add_notice_handler(_note)


def _adopt(connection: Connection) -> None:
    """Configure a connection of the caller's pool once."""
    if connection not in _adopted:
        connection.autocommit = True
        _configure(connection)
        _adopted.add(connection)


_adopted: WeakSet[Connection] = WeakSet()


def _note(diagnostic: Diagnostic) -> None:
    if diagnostic.sqlstate == DEAD_LETTER:
        logger.warning(diagnostic.message_primary)


def _check_alive(connection: Connection) -> None:
    """An idle connection that is readable was mostly closed by the server."""
    for _ in range(3):
        if not select.select([connection.pgconn.socket], [], [], 0)[0]:
            return
        # The last message of the server first, then the end of the stream.
        connection.pgconn.consume_input()
        if connection.pgconn.status != psycopg.pq.ConnStatus.OK:
            break
    raise psycopg.OperationalError("the server closed the connection")


def _shown_name(url: str) -> str:
    """The database and host for error messages, without the password."""
    try:
        info = psycopg.conninfo.conninfo_to_dict(url)
    except psycopg.Error as error:
        raise errors.InvalidUrl(f"this is not a PostgreSQL URL: {_without_values(str(error), url)}") from None
    host, database, user = (str(info.get(name) or "") for name in ("host", "dbname", "user"))
    if "@" in host or ("@" in database and not user):
        raise errors.InvalidUrl(
            "this is not a PostgreSQL URL: its password has a character that means something else there: write @ as "
            "%40, / as %2F, : as %3A and ? as %3F"
        )
    return f"database {database or user or 'default'} on {host or 'localhost'}"


def _without_values(text: str, url: str) -> str:
    """libpq quotes the part of a URL that it cannot parse, which may be a password. The name of a query parameter is
    safe to show, unless a password contains the question mark before it."""
    line = " ".join(text.split())
    is_harmless = line.startswith("invalid URI query parameter") and "@" not in url.partition("?")[2]
    return line if is_harmless else line.partition('"')[0].rstrip(" :")
