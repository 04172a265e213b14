"""Hearing of commits: from threads of this process at once, from others by LISTEN on a connection of its own.

A notification is a hint, never needed for correctness: whoever waits looks again now and then. Notifications make all
commits of a cluster that have one wait for each other, so a process sends at most one in a few milliseconds; whoever
hears one looks a second time a little later, for what was sent meanwhile without one.
"""

from __future__ import annotations

import threading
import time

import psycopg

from penstock.domain.errors import PenstockError
from penstock.engines.postgres.connection import SQL, Database

# At most one notification for each queue and process in this time; a listener looks again after it.
QUIET_SECONDS = 0.005
SECOND_LOOK_SECONDS = 0.012
# Without LISTEN (behind a pooler that hands out connections by transaction) waiting is looking this often.
POLL_SECONDS = 0.1
# How long the listener waits in one go before it sees whether it is still wanted, and after a failure.
ROUND_SECONDS = 1.0
RETRY_SECONDS = 0.5
IDLE_ROUNDS = 30


class Watch:
    def __init__(self, database: Database, listen: bool) -> None:
        self._database = database
        self._listen = listen
        self._changed = threading.Condition()
        self._commits = 0
        self._waiting = 0
        self._notified: dict[str, float] = {}
        self._thread: threading.Thread | None = None
        self._connection: psycopg.Connection | None = None
        self._is_listening = False
        self._closed = False

    def is_due(self, queue: str) -> bool:
        """Whether a send should notify: not when one did a moment ago."""
        now = time.monotonic()
        if now - self._notified.get(queue, 0.0) < QUIET_SECONDS:
            return False
        if len(self._notified) > 10_000:
            self._notified.clear()
        self._notified[queue] = now
        return True

    def seen(self) -> int:
        return self._commits

    def committed(self) -> None:
        """Something was committed here, or was heard of."""
        if self._waiting:
            with self._changed:
                self._commits += 1
                self._changed.notify_all()
        else:
            self._commits += 1

    def wait(self, seen: int, timeout_seconds: float) -> int:
        """Until a commit after `seen`, or the timeout."""
        ends = time.monotonic() + timeout_seconds
        with self._changed:
            self._waiting += 1
            self._start()
            try:
                while self._commits == seen and not self._closed and (left := ends - time.monotonic()) > 0:
                    if self._is_listening:
                        self._changed.wait(left)
                    elif not self._changed.wait(min(left, POLL_SECONDS)):
                        # Nobody would tell: the caller looks for itself.
                        return self._commits
            finally:
                self._waiting -= 1
            return self._commits

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread.is_alive():
            self._interrupt()
            thread.join()

    def _interrupt(self) -> None:
        """Wake the listener from its wait: the pipe under its connection is closed for reading."""
        connection = self._connection
        if connection is not None:
            try:
                import os
                import socket

                duplicate = socket.socket(fileno=os.dup(connection.pgconn.socket))
                duplicate.shutdown(socket.SHUT_RDWR)
                duplicate.close()
            except (OSError, psycopg.Error):
                pass  # it is closed already

    def _start(self) -> None:
        """Called with the lock held, as is the thread's decision to end: one cannot slip past the other. A forked child
        has the object of its parent's thread, but not the thread."""
        is_running = self._thread is not None and self._thread.is_alive()
        if self._listen and not is_running and not self._closed:
            self._thread = threading.Thread(target=self._hear, name="penstock-listen", daemon=True)
            self._thread.start()

    def _hear(self) -> None:
        """Listen while somebody waits, and a little longer; connect again when the server was gone."""
        while not self._is_over(0):
            try:
                self._hear_once()
                return
            except (PenstockError, psycopg.Error, OSError):
                self._is_listening = False
                with self._changed:
                    if not self._closed:
                        self._changed.wait(RETRY_SECONDS)

    def _hear_once(self) -> None:
        connection = self._database.connect()
        self._connection = connection
        try:
            connection.execute(SQL.listen)
            while not self._closed and not self._say_listening(connection):
                time.sleep(0.001)
            self._is_listening = True
            # Others may have committed between the caller's last look and this moment.
            self._tell()
            self._pass_on(connection)
        finally:
            self._is_listening = False
            self._connection = None
            connection.close()

    def _pass_on(self, connection: psycopg.Connection) -> None:
        """Tell of every notification at once, and once more a little after the last one."""
        idle = 0
        look_at: float | None = None
        while not self._is_over(idle):
            timeout = ROUND_SECONDS if look_at is None else max(0.0, look_at - time.monotonic())
            heard = list(connection.notifies(timeout=timeout, stop_after=1))
            if heard or look_at is not None:
                self._tell()
            look_at = time.monotonic() + SECOND_LOOK_SECONDS if heard else None
            idle = 0 if self._waiting or heard else idle + 1

    def _say_listening(self, connection: psycopg.Connection) -> bool:
        row = connection.execute(SQL.say_listening).fetchone()
        return row is not None and bool(row[0])

    def _tell(self) -> None:
        with self._changed:
            self._commits += 1
            self._changed.notify_all()

    def _is_over(self, idle: int) -> bool:
        with self._changed:
            is_over = self._closed or (idle >= IDLE_ROUNDS and not self._waiting)
            if is_over:
                self._thread = None
            return is_over
