"""A write transaction on the store's own connection, as a `with` block."""

from __future__ import annotations

import logging
import os
import threading
from types import TracebackType
from typing import TYPE_CHECKING

import apsw

from penstock.domain.errors import StoreUnavailable
from penstock.engines.sqlite.transaction import SQL, SqliteTransaction

if TYPE_CHECKING:
    from penstock.engines.sqlite.connection import SqliteDatabase

logger = logging.getLogger("penstock.dead_letters")


class SqliteWrite(SqliteTransaction):
    """The transaction itself is the `with` block, and each end of it is one function: every call of the store makes
    one. Inside another write of the same thread it is a savepoint of that one."""

    __slots__ = ("_changes", "_database", "_deaths", "_durable", "_outer", "_silent")

    def __init__(self, database: SqliteDatabase, durable: bool, silent: bool = False) -> None:
        self._database = database
        self._durable = durable
        self._silent = silent

    def __enter__(self) -> SqliteTransaction:
        """Take the write lock, of this process first, then of the file."""
        database = self._database
        if database.process != os.getpid():
            database.open_in_child()
        lock = database.write_lock
        # The first attempt takes the time of no clock.
        if not (lock.acquire(False) or lock.acquire(timeout=database.patience_seconds)):
            raise database.held_too_long()
        self._outer = outer = database.current
        try:
            try:
                database.check_open()
                if outer is not None:
                    database.run(SQL.savepoint)
                    self._deaths = len(outer.deaths)
                    return outer
                if self._durable is not database.is_durable:
                    database.is_durable = None
                    database.run(SQL.durable if self._durable else SQL.relaxed)
                    database.is_durable = self._durable
                database.run(SQL.begin_write)
                SqliteTransaction.__init__(self, database, database.cursor)
                self._changes = database.writer.total_changes()
                database.current, database.owner = self, threading.get_ident()
            except BaseException:
                # Also of a signal handler, after the transaction has begun: left open it would stop every process.
                self._leave()
                raise
        except apsw.Error as error:
            raise database.translate(error) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        database, has_changed = self._database, False
        if database.current is not (self._outer or self):
            self._check_ended(error)
            return
        try:
            try:
                if self._outer is not None:
                    self._end_savepoint(self._outer, error)
                elif error is None:
                    database.run(SQL.commit)
                    has_changed = database.writer.total_changes() != self._changes
            finally:
                self._leave()
        except apsw.Error as failure:
            raise database.translate(failure) from failure
        if isinstance(error, apsw.Error):
            raise database.translate(error) from error
        if has_changed and not self._silent:
            for death in self.deaths:
                logger.warning(death)
            database.on_commit()

    def _check_ended(self, error: BaseException | None) -> None:
        """`end_interrupted` has ended this transaction: an error goes on, but nothing was committed."""
        if error is None:
            raise StoreUnavailable(f"{self._database.path}: a signal handler ended this transaction; try again")

    def _end_savepoint(self, outer: SqliteTransaction, error: BaseException | None) -> None:
        """SQLite may have rolled back the whole transaction by itself, and the savepoint with it."""
        database = self._database
        if error is not None:
            del outer.deaths[self._deaths :]
            if not database.writer.in_transaction:
                return
            database.run(SQL.rollback_to)
        database.run(SQL.release)

    def _leave(self) -> None:
        """Release the lock, with no transaction left open behind it."""
        database = self._database
        try:
            if self._outer is None:
                database.current = None
                if database.writer.in_transaction:
                    database.run(SQL.rollback)
        finally:
            database.write_lock.release()
