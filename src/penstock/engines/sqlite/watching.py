"""Hearing of commits of other processes by looking at the file now and then.

SQLite has no way to wake another process, but it keeps a number that changes with every commit and costs a few
microseconds to read. One thread per store reads it, and only while somebody waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from penstock.engines.sqlite.connection import SQL, Database, Write
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.watching import Watch

# A waiting receiver hears of another process's commit after half of this on average, in a quiet time half as often:
# looking costs about 1% of a core in the one case and half of that in the other.
LOOK_EVERY_SECONDS = 0.01
QUIET_LOOK_EVERY_SECONDS = 0.02
QUIET_LOOKS = 100


class FileWatch(Watch):
    idle_rounds = 100

    def __init__(self, database: Database) -> None:
        super().__init__(database.watch_lock)
        self._database = database
        self._connection: apsw.Connection | None = None

    def _is_wanted(self) -> bool:
        return not self._database.in_memory

    def _interrupt(self) -> None:
        """It never sleeps longer than a moment."""

    @contextmanager
    def unheard(self) -> Iterator[Transaction]:
        """A transaction that nobody who waits in this process hears of, for a note that makes nothing ready. The number
        does not change for commits of the connection that reads it."""
        # In this order, as everywhere: first the lock for writing.
        with self._database.exclusively(), self._database.watch_lock:
            is_looking = self._thread is not None and self._thread.is_alive() and self._connection is not None
            if is_looking:
                assert self._connection is not None
                with self._database.write_aside(self._connection) as transaction:
                    yield transaction
            else:
                with Write(self._database, durable=False, silent=True) as transaction:
                    yield transaction

    def _look(self) -> None:
        with self._database.watch_lock:
            connection = self._connection = self._database.connection()
            # All that it ever writes are notes.
            connection.execute(SQL.relaxed).fetchall()
        try:
            version = self._version(connection)
            # Others may have committed between the caller's last look and this first one.
            self.committed()
            idle = quiet = 0
            while not self._is_over(idle):
                time.sleep(QUIET_LOOK_EVERY_SECONDS if quiet > QUIET_LOOKS else LOOK_EVERY_SECONDS)
                idle = 0 if self._waiting else idle + 1
                quiet += 1
                latest = self._version(connection)
                if latest != version:
                    version, quiet = latest, 0
                    self.committed()
        finally:
            with self._database.watch_lock:
                if self._connection is connection:
                    self._connection = None
                connection.close()

    def _version(self, connection: apsw.Connection) -> int:
        with self._database.watch_lock:
            version = connection.execute(SQL.data_version).fetchall()[0][0]
        assert isinstance(version, int)
        return version
