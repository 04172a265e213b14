"""Hearing from the kernel that a file is being written to, where it tells (Linux: inotify).

Without it, hearing of others means looking again and again, and to wake up for a look costs more than the look.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys

MODIFIED = 0x2  # IN_MODIFY
# More than the few events that can pile up: equal ones in a row are one.
READ_BYTES = 4096


class Ear:
    """At one file. Raises OSError where there is nothing to hear, or when the user has too many already."""

    def __init__(self, path: str) -> None:
        if sys.platform != "linux":
            raise OSError("only Linux tells")
        libc = ctypes.CDLL(None, use_errno=True)
        self._events: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._events < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        if libc.inotify_add_watch(self._events, os.fsencode(path), MODIFIED) < 0:
            number = ctypes.get_errno()
            self.close()
            raise OSError(number, "inotify_add_watch", path)
        self._both = select.poll()
        self._both.register(self._events, select.POLLIN)
        self._both.register(self._bell, select.POLLIN)

    def wait(self, seconds: float) -> bool:
        """Until the file is written to, the bell rings or the time is up; whether it was written to."""
        self._both.poll(seconds * 1000)
        return self.has_heard()

    def has_heard(self) -> bool:
        """Whether the file was written to since this was last asked."""
        try:
            return bool(os.read(self._events, READ_BYTES))
        except BlockingIOError:
            return False

    def ring(self) -> None:
        """Ends every wait from now on; from any thread."""
        os.eventfd_write(self._bell, 1)

    def close(self) -> None:
        os.close(self._events)
        os.close(self._bell)
