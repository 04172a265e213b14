"""Starting processes of the demo, and noticing when the one that started them is gone."""

from __future__ import annotations

import multiprocessing
import signal
from multiprocessing.process import BaseProcess


def start_deaf_to_interrupts(process: BaseProcess) -> None:
    """Ctrl-C reaches every process of a terminal; only the parent should react, by ending the others.

    A process that is started while interrupts are ignored ignores them from its first moment on.
    """
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process.start()
    finally:
        signal.signal(signal.SIGINT, before)


def parent_is_gone() -> bool:
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
