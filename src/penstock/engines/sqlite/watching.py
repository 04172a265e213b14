"""Hearing of commits of other processes: by looking at a number of the file that changes with every commit.

One thread per store looks, and only while somebody waits. In a lively time it looks every few milliseconds. In a quiet
one it sleeps until the kernel says that somebody writes, and looks until the commit is there or nothing came of it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import apsw

from penstock.engines.sqlite.connection import SQL, Database, Write
from penstock.engines.sqlite.hearing import Ear
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.watching import Watch

# A waiting receiver hears of another process's commit after half of this on average.
LOOK_EVERY_SECONDS = 0.01
# It is quiet after so many looks for nothing.
QUIET_LOOKS = 30
# Then, where the kernel does not tell, looking half as often costs half a percent of a core.
QUIET_LOOK_EVERY_SECONDS = 0.02
# Writing comes before the commit, and how long before depends on the disk: the first look after it was heard, then
# after twice as long each time.
FIRST_LOOK_SECONDS = 0.002
LAST_LOOK_SECONDS = 0.1
# A look without having heard anything, for safety.
SAFETY_LOOK_SECONDS = 0.5


class FileWatch(Watch):
    idle_rounds = 100

    def __init__(self, database: Database) -> None:
        super().__init__(database.watch_lock)
        self._database = database
        self._connection: apsw.Connection | None = None
        self._ear: Ear | None = None

    def _is_wanted(self) -> bool:
        return not self._database.in_memory

    def _interrupt(self) -> None:
        with self._database.watch_lock:
            if self._ear is not None:
                self._ear.ring()

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
            self._prick_up(connection.filename_wal)
            # Others may have committed between the caller's last look and this first one.
            self.committed()
            rhythm = Rhythm()
            idle = 0
            while not self._is_over(idle):
                rhythm.rest(self._ear)
                idle = 0 if self._waiting else idle + 1
                latest = self._version(connection)
                if latest != version:
                    version = latest
                    self.committed()
                    if rhythm.is_surprised():
                        self._cover_up()
        finally:
            self._cover_up()
            with self._database.watch_lock:
                if self._connection is connection:
                    self._connection = None
                connection.close()

    def _prick_up(self, path: str) -> None:
        with suppress(OSError):
            self._ear = Ear(path)

    def _cover_up(self) -> None:
        with self._database.watch_lock:
            ear, self._ear = self._ear, None
            if ear is not None:
                ear.close()

    def _version(self, connection: apsw.Connection) -> int:
        with self._database.watch_lock:
            version = connection.execute(SQL.data_version).fetchall()[0][0]
        assert isinstance(version, int)
        return version


class Rhythm:
    """When to look next."""

    def __init__(self) -> None:
        self._quiet = 0  # looks for nothing in a row
        self._pause = 0.0  # since writing was heard; 0 when it was not
        self._has_heard = False  # since the last commit

    def rest(self, ear: Ear | None) -> None:
        self._quiet += 1
        if self._quiet <= QUIET_LOOKS:
            time.sleep(LOOK_EVERY_SECONDS)
        elif ear is None:
            time.sleep(QUIET_LOOK_EVERY_SECONDS)
        elif 0 < self._pause <= LAST_LOOK_SECONDS:
            time.sleep(self._pause)
            self._pause = FIRST_LOOK_SECONDS if ear.has_heard() else 2 * self._pause
        elif ear.wait(SAFETY_LOOK_SECONDS):
            self._pause, self._has_heard = FIRST_LOOK_SECONDS, True

    def is_surprised(self) -> bool:
        """There was a commit: whether it came in a quiet time, and nothing was heard of it."""
        is_surprised = self._quiet > QUIET_LOOKS and not self._has_heard
        self._quiet, self._pause, self._has_heard = 0, 0.0, False
        return is_surprised
