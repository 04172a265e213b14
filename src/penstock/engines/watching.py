"""Hearing of commits: from threads of this process at once, from elsewhere by a thread that an engine brings along and
that runs only while somebody waits, and a little longer so that a polling loop keeps it."""

from __future__ import annotations

import itertools
import threading
import time
from abc import ABC, abstractmethod


class Watch(ABC):
    # The thread ends when nobody has waited for this many of its rounds.
    idle_rounds: int

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
        """Something was committed here, or was heard of."""
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
        """Called with the lock held, as is the thread's decision to end: one cannot slip past the other. A forked child
        has the object of its parent's thread, but not the thread."""
        is_running = self._thread is not None and self._thread.is_alive()
        if not is_running and not self._closed and self._is_wanted():
            self._thread = threading.Thread(target=self._look, name="penstock-watch", daemon=True)
            self._thread.start()

    def _is_over(self, idle: int) -> bool:
        """Whether the thread should end after so many rounds in which nobody waited."""
        with self._changed:
            is_over = self._closed or (idle >= self.idle_rounds and not self._waiting)
            if is_over:
                self._thread = None
            return is_over

    # -- what engines differ in ------------------------------------------------------------------------------------

    @abstractmethod
    def _look(self) -> None:
        """The thread: call `committed` for every commit of others, until `_is_over`."""

    @abstractmethod
    def _is_wanted(self) -> bool:
        """Whether a thread can hear anything."""

    def _patience(self) -> float:
        """After how many seconds a waiter should look for itself, because nobody would tell."""
        return threading.TIMEOUT_MAX

    @abstractmethod
    def _interrupt(self) -> None:
        """Wake the thread from a wait that would not end soon."""
