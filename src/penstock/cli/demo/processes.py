"""Starting processes of the demo, and noticing when the one that started them is gone."""

from __future__ import annotations

import multiprocessing
import signal
import sys
from multiprocessing.process import BaseProcess


def start_deaf_to_interrupts(process: BaseProcess) -> None:
    """Ctrl-C reaches every process of a terminal; only the parent should react, by ending the others.

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


def parent_is_gone() -> bool:
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
