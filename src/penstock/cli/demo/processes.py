"""Start of the demo's processes, and detection of the parent's exit."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from multiprocessing.process import BaseProcess


def start_without_interrupts(process: BaseProcess) -> None:
    """Start a process that ignores Ctrl-C, which reaches every process of a terminal: the parent ends the others.

    A process inherits the blocked signals of the one that starts it. The parent's own interrupt is not lost: it
    arrives when it is no longer blocked.
    """
    if sys.platform == "win32":
        process.start()
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def parent_has_exited() -> bool:
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
