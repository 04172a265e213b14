"""Hearing of commits: from threads of this process at once, from other processes by looking at the file now and then.

SQLite has no way to wake another process, but it keeps a number that changes with every commit and costs a few
microseconds to read. One thread per store reads it, and only while somebody waits.
"""

from __future__ import annotations

import itertools
import threading
import time

import apsw

from penstock.engines.sqlite.connection import SQL, Database

# A waiting receiver hears of another process's commit after half of this on average, in a quiet time half as often:
# looking costs about 1% of a core in the one case and half of that in the other.
LOOK_EVERY_SECONDS = 0.01
QUIET_LOOK_EVERY_SECONDS = 0.02
QUIET_LOOKS = 100
IDLE_LOOKS = 100


class Watch:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self._commits = 0
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def seen(self) -> int:
        return self._commits

    def committed(self) -> None:
        """Something was committed here."""
        # Without the lock, because every commit comes by. Each number is given once, so whatever order threads write it
        # in, a waiter that read it before sees another one after; and a waiter counts itself before it looks.
        self._commits = next(self._numbers)
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, seen: int, timeout_seconds: float) -> int:
        """Until a commit after `seen`, or the timeout."""
        ends = time.monotonic() + timeout_seconds
        with self._changed:
            self._waiting += 1
            self._start()
            try:
                while self._commits == seen and not self._closed and (left := ends - time.monotonic()) > 0:
                    self._changed.wait(left)
            finally:
                self._waiting -= 1
            return self._commits

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None:
            thread.join()

    def _start(self) -> None:
        """Called with the lock held, as is the thread's decision to end: one cannot slip past the other. A forked child
        has the object of its parent's thread, but not the thread."""
        is_looking = self._thread is not None and self._thread.is_alive()
        if not is_looking and not self._closed and not self._database.in_memory:
            self._thread = threading.Thread(target=self._look, name="penstock-watch", daemon=True)
            self._thread.start()

    def _look(self) -> None:
        """Look at the file while somebody waits, and a little longer so that a polling loop keeps its thread."""
        connection = self._database.connection()
        try:
            version = _version(connection)
            # Others may have committed between the caller's last look and this first one.
            self.committed()
            idle = quiet = 0
            while not self._is_over(idle):
                time.sleep(QUIET_LOOK_EVERY_SECONDS if quiet > QUIET_LOOKS else LOOK_EVERY_SECONDS)
                idle = 0 if self._waiting else idle + 1
                quiet += 1
                latest = _version(connection)
                if latest != version:
                    version, quiet = latest, 0
                    self.committed()
        finally:
            connection.close()

    def _is_over(self, idle: int) -> bool:
        with self._changed:
            is_over = self._closed or (idle >= IDLE_LOOKS and not self._waiting)
            if is_over:
                self._thread = None
            return is_over


def _version(connection: apsw.Connection) -> int:
    version = connection.execute(SQL.data_version).fetchall()[0][0]
    assert isinstance(version, int)
    return version
