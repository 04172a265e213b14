"""Notice commits of other processes, by polling SQLite's data version, which changes with every commit.

One thread per store polls, and only while a call waits. Under load it polls every few milliseconds. When the store is
idle it sleeps until inotify reports a write to the log file, then polls until the commit is visible or a timeout.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import apsw

from penstock.engines.commit_watch import CommitWatch
from penstock.engines.sqlite.connection import SqliteDatabase
from penstock.engines.sqlite.transaction import SQL, SqliteTransaction
from penstock.engines.sqlite.write import SqliteWrite

# The poll interval under load: a waiting receive notices another process's commit after half of it on average.
POLL_SECONDS = 0.01
# The store counts as idle after this many polls without a commit.
IDLE_POLLS = 30
# The poll interval of an idle store without inotify: half a percent of a core.
IDLE_POLL_SECONDS = 0.02
# A write precedes its commit by a time that depends on the disk: the first poll after a write event, then each time
# after twice as long.
FIRST_POLL_SECONDS = 0.002
LAST_POLL_SECONDS = 0.1
# The poll interval of an idle store without a write event, in case one was missed, and of waiting calls while the
# thread cannot open the file.
SAFETY_POLL_SECONDS = 0.5

MODIFIED = 0x2  # IN_MODIFY
# More than the few events that can pile up: identical consecutive events are merged by the kernel.
READ_BYTES = 4096


class FileWatch(CommitWatch):
    idle_rounds = 100
    failures = (apsw.Error, OSError)

    def __init__(self, database: SqliteDatabase) -> None:
        super().__init__(database.watch_lock)
        self._database = database
        self._connection: apsw.Connection | None = None
        self._events: WriteEvents | None = None

    def _is_wanted(self) -> bool:
        return not self._database.in_memory

    def _patience(self) -> float:
        is_watching = self._connection is not None or self._database.in_memory
        return threading.TIMEOUT_MAX if is_watching else SAFETY_POLL_SECONDS

    def _interrupt(self) -> None:
        with self._database.watch_lock:
            if self._events is not None:
                self._events.interrupt()

    @contextmanager
    def silent_write(self) -> Iterator[SqliteTransaction]:
        """A write that wakes no waiting call of this process. It uses the polling connection, because the data version
        does not change for commits of the connection that reads it."""
        # Lock order: the write lock first, as everywhere.
        with self._database.exclusively(), self._database.watch_lock:
            is_polling = self._thread is not None and self._thread.is_alive() and self._connection is not None
            if is_polling:
                assert self._connection is not None
                with self._database.write_aside(self._connection) as transaction:
                    yield transaction
            else:
                with SqliteWrite(self._database, durable=False, silent=True) as transaction:
                    yield transaction

    def _look(self) -> None:
        with self._database.watch_lock:
            connection = self._connection = self._database.connection()
            # It writes nothing that must survive a power cut.
            connection.execute(SQL.relaxed).fetchall()
        try:
            version = self._version(connection)
            self._open_events(connection.filename_wal)
            # Another process may have committed between the caller's last read and this first poll.
            self.committed()
            interval = PollInterval()
            idle = 0
            while not self._is_over(idle):
                interval.sleep(self._events)
                idle = 0 if self._waiting else idle + 1
                latest = self._version(connection)
                if latest != version:
                    version = latest
                    self.committed()
                    if interval.has_missed_write():
                        self._close_events()
        finally:
            self._close_events()
            with self._database.watch_lock:
                if self._connection is connection:
                    self._connection = None
                connection.close()

    def _open_events(self, path: str) -> None:
        with suppress(OSError):
            self._events = WriteEvents(path)

    def _close_events(self) -> None:
        with self._database.watch_lock:
            events, self._events = self._events, None
            if events is not None:
                events.close()

    def _version(self, connection: apsw.Connection) -> int:
        with self._database.watch_lock:
            version = connection.execute(SQL.data_version).fetchall()[0][0]
        assert isinstance(version, int)
        return version


class PollInterval:
    """How long to sleep until the next poll."""

    def __init__(self) -> None:
        self._idle = 0  # consecutive polls without a commit
        self._pause = 0.0  # the interval since a write event; 0 without one
        self._has_event = False  # a write event since the last commit

    def sleep(self, events: WriteEvents | None) -> None:
        self._idle += 1
        if self._idle <= IDLE_POLLS:
            time.sleep(POLL_SECONDS)
        elif events is None:
            time.sleep(IDLE_POLL_SECONDS)
        elif 0 < self._pause <= LAST_POLL_SECONDS:
            time.sleep(self._pause)
            self._pause = FIRST_POLL_SECONDS if events.poll() else 2 * self._pause
        elif events.wait(SAFETY_POLL_SECONDS):
            self._pause, self._has_event = FIRST_POLL_SECONDS, True

    def has_missed_write(self) -> bool:
        """Called after a commit: whether the store was idle and no write event came before it. Starts over."""
        has_missed = self._idle > IDLE_POLLS and not self._has_event
        self._idle, self._pause, self._has_event = 0, 0.0, False
        return has_missed


class WriteEvents:
    """Write events of one file, by inotify. Raises OSError on other systems, for a missing file, and at the user's
    limit of inotify instances."""

    def __init__(self, path: str) -> None:
        if sys.platform != "linux":
            raise OSError("only Linux has inotify")
        libc = ctypes.CDLL(None, use_errno=True)
        self._inotify: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._inotify < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._interrupt = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if libc.inotify_add_watch(self._inotify, os.fsencode(path), MODIFIED) < 0:
            number = ctypes.get_errno()
            self.close()
            raise OSError(number, "inotify_add_watch", path)
        self._poll = select.poll()
        self._poll.register(self._inotify, select.POLLIN)
        self._poll.register(self._interrupt, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Block until a write, an interrupt or the timeout; return whether there was a write."""
        self._poll.poll(seconds * 1000)
        return self.poll()

    def poll(self) -> bool:
        """Whether the file was written to since the last call."""
        try:
            return bool(os.read(self._inotify, READ_BYTES))
        except BlockingIOError:
            return False

    def interrupt(self) -> None:
        """End every wait from now on; from any thread."""
        os.eventfd_write(self._interrupt, 1)

    def close(self) -> None:
        os.close(self._inotify)
        os.close(self._interrupt)
