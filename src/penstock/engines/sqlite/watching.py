"""Hearing of commits of other processes by looking at the file now and then.

SQLite has no way to wake another process, but it keeps a number that changes with every commit and costs a few
microseconds to read. One thread per store reads it, and only while somebody waits.
"""

from __future__ import annotations

import time

import apsw

from penstock.engines.sqlite.connection import SQL, Database
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

    def _is_wanted(self) -> bool:
        return not self._database.in_memory

    def _interrupt(self) -> None:
        """It never sleeps longer than a moment."""

    def _look(self) -> None:
        with self._database.watch_lock:
            connection = self._database.connection()
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
                connection.close()

    def _version(self, connection: apsw.Connection) -> int:
        with self._database.watch_lock:
            version = connection.execute(SQL.data_version).fetchall()[0][0]
        assert isinstance(version, int)
        return version
