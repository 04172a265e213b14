"""Connections to the file of a store: opening, transactions, and the translation of errors.

One connection writes, under a lock of the process: SQLite has one writer anyway, and waiting for a lock is cheaper than
polling a busy file. A second connection reads, so that reads never wait for a commit. A store in memory has one
connection for both.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import apsw

from penstock.domain import errors
from penstock.engines.positional.database import Tokens
from penstock.engines.sqlite import caller_transaction
from penstock.engines.sqlite.transaction import SQL, SqliteTransaction
from penstock.engines.sqlite.write import SqliteWrite

MEMORY = ":memory:"
# Older versions can lose committed writes when two connections checkpoint the write-ahead log at once.
OLDEST_SQLITE = (3, 51, 3)


class SqliteDatabase:
    def __init__(self, path: str, clock: Callable[[], int], random: Callable[[], float], busy_seconds: float) -> None:
        self.path = path
        self.in_memory = path == MEMORY
        self.clock = clock
        self.random = random
        self.busy_seconds = busy_seconds
        self.patience_seconds = busy_seconds + 1
        self.salt = 0
        self.tokens = Tokens()
        self.on_commit: Callable[[], None] = lambda: None
        # What `SqliteWrite` works with: the connection that writes, its open transaction and the thread of that.
        self.writer: apsw.Connection
        self.cursor: apsw.Cursor
        self.current: SqliteTransaction | None
        self.owner: int
        # Whether the next commit is flushed; None while that changes.
        self.is_durable: bool | None
        self.process: int
        self.is_closed = False
        self.write_lock = threading.RLock()
        self._interruptions = 0
        self._reader: apsw.Connection
        self._read_lock = threading.RLock()
        # For the polling connection of `notify`; see `hold_for_fork`.
        self.watch_lock = threading.RLock()
        self._open()
        _databases.add(self)

    # -- transactions ----------------------------------------------------------------------------------------------

    def write(self, queue: str | None = None, durable: bool = True, patient: bool = True) -> SqliteWrite:
        """A write transaction, the only one of the store; inside another write of the same thread, a savepoint."""
        return SqliteWrite(self, durable)

    def end_interrupted(self) -> None:
        """Python runs a signal handler also between two lines of a `with` block, such as at the first line of
        `__exit__`. What it raises there leaves the lock and the transaction to nobody."""
        if self.process != os.getpid() or not self.write_lock.acquire(blocking=False):
            return  # Another thread writes, so this one left nothing.
        try:
            self._interruptions += 1
            self.current = None
            if self.writer.in_transaction:
                self.run(SQL.rollback)
        finally:
            with suppress(RuntimeError):
                while True:
                    self.write_lock.release()

    @contextmanager
    def read(self, queue: str | None = None) -> Iterator[SqliteTransaction]:
        """A snapshot that does not wait for writers."""
        if self.current is not None and self.owner == threading.get_ident():
            yield self.current
            return
        if self.in_memory:
            with SqliteWrite(self, durable=True, silent=True) as transaction:
                yield transaction
            return
        if self.process != os.getpid():
            self.open_in_child()
        with self._read_lock, self.translated():
            self.check_open()
            try:
                self._reader.execute(SQL.begin_read)
                yield SqliteTransaction(self, self._reader.cursor())
            finally:
                if self._reader.in_transaction:
                    self._reader.execute(SQL.rollback)

    @contextmanager
    def caller_write(self, connection: object) -> Iterator[SqliteTransaction]:
        """A savepoint on the caller's own connection to the store's file."""
        own = caller_transaction.check_connection(connection, self.path, self.in_memory)
        with self.translated(), caller_transaction.without_tracers(own), own:
            caller_transaction.take_write_lock(own)
            yield SqliteTransaction(self, own.cursor())

    @contextmanager
    def write_aside(self, connection: apsw.Connection) -> Iterator[SqliteTransaction]:
        """A write on another connection of this process, serialised with the other writes."""
        if self.process != os.getpid():
            self.open_in_child()
        with self.exclusively(), self.translated():
            self.check_open()
            try:
                connection.execute(SQL.begin_write)
                yield SqliteTransaction(self, connection.cursor())
                connection.execute(SQL.commit)
            finally:
                if connection.in_transaction:
                    connection.execute(SQL.rollback)

    # -- opening and closing ---------------------------------------------------------------------------------------

    def _open(self) -> None:
        _check_version()
        self._check_path()
        self.process = os.getpid()
        self.current = None
        self.owner = 0
        self.is_durable = True
        with self.translated():
            self.writer = self.connection()
            self.cursor = self.writer.cursor()
            self.run = self.cursor.execute
            self._reader = self.writer if self.in_memory else self.connection()
        self._handle = None if self.in_memory else _handle(self.path)

    def connection(self) -> apsw.Connection:
        """A connection with the settings that SQLite does not store in the file."""
        connection = apsw.Connection(self.path, statementcachesize=128)
        connection.set_busy_timeout(int(self.busy_seconds * 1000))
        # Keep plans independent of bound values: otherwise every range query is prepared again for every call.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        for pragma in (
            SQL.trusted_schema,
            SQL.cell_size_check,
            SQL.set_journal_mode,
            SQL.durable,
            SQL.cache_size,
            SQL.checkpoint_pages,
            SQL.journal_size_limit,
        ):
            # apsw steps a statement only while its rows are read: without fetchall a pragma may not take effect.
            connection.execute(pragma).fetchall()
        return connection

    def close(self) -> None:
        """Wait for the calls of other threads, because SQLite does not close a connection in use; refuse calls that
        wait for their turn. A forked child must not touch the connections of its parent."""
        self.is_closed = True
        if self.process == os.getpid():
            with self.exclusively(), self._held(self._read_lock):
                self.writer.close()
                self._reader.close()
                if self._handle is not None:
                    os.close(self._handle)
                    self._handle = None

    @contextmanager
    def exclusively(self) -> Iterator[None]:
        """Hold the write lock of this process."""
        if not self.write_lock.acquire(timeout=self.patience_seconds):
            raise self.held_too_long()
        interruptions = self._interruptions
        try:
            yield
        finally:
            # Else it was released already, and may be held by another call.
            if interruptions == self._interruptions:
                self.write_lock.release()

    @contextmanager
    def _held(self, lock: threading.RLock) -> Iterator[None]:
        if not lock.acquire(timeout=self.patience_seconds):
            raise self.held_too_long()
        try:
            yield
        finally:
            lock.release()

    def held_too_long(self) -> errors.StoreUnavailable:
        return errors.StoreUnavailable(f"{self.path}: another thread held the store for {self.busy_seconds:g} s")

    def check_open(self) -> None:
        if self.is_closed:
            raise errors.StoreUnavailable(f"{self.path}: this store was closed")
        if self.is_removed():
            raise errors.StoreUnavailable(
                f"{self.path} was removed while it was open, and what is written to it now would be lost: "
                "restore it, and open the store again"
            )

    def is_removed(self) -> bool:
        """Whether the file was removed or replaced; those who have it open could still write to it."""
        return self._handle is not None and os.fstat(self._handle).st_nlink == 0

    def open_in_child(self) -> None:
        """SQLite's locks do not survive a fork: a child opens connections of its own and leaves its parent's alone."""
        _inherited.append((self.writer, self._reader))
        self._open()

    def _check_path(self) -> None:
        if self.in_memory:
            return
        parent = os.path.dirname(os.path.abspath(self.path))
        if os.path.isdir(self.path):
            raise errors.NotAStore(f"{self.path} is a directory: name a file in it, such as {self.path}/app.db")
        if not os.path.isdir(parent):
            raise errors.NotAStore(f"{self.path}: there is no directory {parent}; make it first")
        if not os.path.exists(self.path) and os.access(parent, os.W_OK):
            # Messages are private: only the owner may read the file; SQLite gives its journal files the same mode.
            self._make_file()

    def _make_file(self) -> None:
        try:
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR, 0o600))
        except OSError as error:
            raise errors.NotAStore(f"{self.path} cannot be made: {error.strerror}; name another path") from None

    # -- forks -----------------------------------------------------------------------------------------------------

    def hold_for_fork(self) -> None:
        """Keep other threads out of SQLite during a fork: a lock that one of them holds inside SQLite would stay locked
        in the child, where that thread does not exist."""
        for lock in self._locks():
            lock.acquire()

    def go_on_after_fork(self) -> None:
        for lock in reversed(self._locks()):
            lock.release()

    def _locks(self) -> tuple[threading.RLock, ...]:
        return self.write_lock, self._read_lock, self.watch_lock

    # -- errors ----------------------------------------------------------------------------------------------------

    @contextmanager
    def translated(self) -> Iterator[None]:
        try:
            yield
        except apsw.Error as error:
            raise self.translate(error) from error

    def translate(self, error: apsw.Error) -> errors.PenstockError:
        path = self.path
        match error:
            case apsw.BusyError() if getattr(error, "extendedresult", None) == apsw.SQLITE_BUSY_SNAPSHOT:
                return errors.StoreUnavailable(
                    f"{path}: the transaction began by reading, and another one has written since; "
                    "begin it with BEGIN IMMEDIATE and try again"
                )
            case apsw.BusyError() | apsw.LockedError():
                return errors.StoreUnavailable(
                    f"{path} is locked: another transaction has been writing for {self.busy_seconds:g} s; "
                    "end it or try again"
                )
            case apsw.FullError():
                return errors.StoreFull(f"{path}: no room left on the device; nothing was written")
            case apsw.ReadOnlyError():
                return errors.StoreReadOnly(
                    f"{path} is read-only: give this process the right to write it and its folder"
                )
            case apsw.NotADBError():
                return errors.NotAStore(f"{path} is not a SQLite database")
            case apsw.CorruptError():
                return errors.StoreCorrupt(
                    f"{path} is damaged ({error}); nothing was changed: restore a backup or use sqlite3 .recover"
                )
            case apsw.CantOpenError():
                return errors.StoreUnavailable(
                    f"{path} cannot be opened ({error}): check that the path and its rights are right"
                )
            case apsw.TooBigError():
                return errors.PayloadTooLarge(f"a value is larger than SQLite can hold ({error})")
            case apsw.IOError():
                return errors.DiskError(f"{path}: {error}; whether the call took effect is not known: check the disk")
            case apsw.ConnectionClosedError():
                return errors.StoreUnavailable(f"{path}: this store was closed")
            case _:
                return errors.StoreError(f"{path}: {error}")


# Connections of a parent process, kept unused: closing them here would drop the parent's locks.
_inherited: list[tuple[Any, Any]] = []


_databases: weakref.WeakSet[SqliteDatabase] = weakref.WeakSet()
_held: list[SqliteDatabase] = []


def _hold_all() -> None:
    for database in list(_databases):
        database.hold_for_fork()
        _held.append(database)


def _let_go_of_all() -> None:
    while _held:
        _held.pop().go_on_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_all, after_in_parent=_let_go_of_all, after_in_child=_let_go_of_all)


def _handle(path: str) -> int | None:
    """A descriptor for fstat that does not count as opening the file: closing an open file drops all locks that this
    process has on it, including those of SQLite. Linux only."""
    return os.open(path, os.O_PATH | os.O_CLOEXEC) if hasattr(os, "O_PATH") else None


def _check_version() -> None:
    version = apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")) < OLDEST_SQLITE:
        raise errors.EngineTooOld(
            f"SQLite {version} can lose committed writes in WAL mode: install apsw 3.51.3 or newer"
        )


def absent_store(path: str) -> str | None:
    """Return why there is no store at a path, or None if there is one or only opening it can tell."""
    if path == MEMORY:
        return None
    if not os.path.exists(path):
        return "there is no store"
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return None if connection.execute(SQL.has_schema).get else "there is a database but no store in it"
        finally:
            connection.close()
    except apsw.Error:  # not a database, locked or unreadable
        return None
