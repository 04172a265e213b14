"""Waiting for commits: of this process directly, of other processes by a thread of the engine, which runs only while a
call waits, and a little longer for polling loops."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod

# The pause of the thread after a failure.
RETRY_SECONDS = 0.5


class CommitWatch(ABC):
    # The thread ends after this many rounds without a waiting call.
    idle_rounds: int
    # The errors of a database that cannot be reached for now.
    failures: tuple[type[Exception], ...]

    def __init__(self, lock: threading.RLock | None = None) -> None:
        self._changed = threading.Condition(lock)
        self._numbers = itertools.count(1)
        self._commits = 0
        self._waiting = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def seen(self) -> int:
        return self._commits

    def committed(self) -> None:
        """Called for every commit, by this process or noticed from another."""
        # Without the lock, because this runs for every commit. Each number is used once, so in whatever order threads
        # store it, a waiter that read it before sees a different one; and a waiter registers before it reads.
        self._commits = next(self._numbers)
        if self._waiting:
            with self._changed:
                self._changed.notify_all()

    def wait(self, seen: int, timeout_seconds: float) -> int:
        """Block until a commit after `seen`, or until the timeout."""
        ends = time.monotonic() + timeout_seconds
        with self._changed:
            self._waiting += 1
            self._start()
            try:
                while self._commits == seen and not self._closed and (left := ends - time.monotonic()) > 0:
                    patience = self._patience()
                    if not self._changed.wait(min(left, patience)) and patience < left:
                        break
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

    def _start(self) -> None:
        """Start the thread. Called with the lock held, as is the thread's decision to end, so that neither can miss the
        other. A forked child has the object of its parent's thread, but not the thread."""
        is_running = self._thread is not None and self._thread.is_alive()
        if not is_running and not self._closed and self._is_wanted():
            self._thread = threading.Thread(target=self._run, name="penstock-watch", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        """The thread. A database that cannot be reached must not end it while a call waits: that call would miss every
        later commit of another process."""
        for failed in itertools.count():
            if self._is_over(failed):
                return
            try:
                self._look()
                return
            except self.failures:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed, RETRY_SECONDS)

    def _is_over(self, idle: int) -> bool:
        """Whether the thread should end after `idle` rounds without a waiting call."""
        with self._changed:
            is_over = self._closed or (idle >= self.idle_rounds and not self._waiting)
            if is_over:
                self._thread = None
            return is_over

    # -- what engines differ in ------------------------------------------------------------------------------------

    @abstractmethod
    def _look(self) -> None:
        """Call `committed` for every commit of another process, until `_is_over`. Called again after a failure."""

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Whether a thread can notice commits of other processes."""

    @abstractmethod
    def _patience(self) -> float:
        """The seconds after which a waiting call checks by itself, because the thread is not watching."""

    @abstractmethod
    def _interrupt(self) -> None:
        """Interrupt the wait of the thread."""
