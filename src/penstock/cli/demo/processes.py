"""What all processes of the demo share."""

from __future__ import annotations

import multiprocessing
import signal


def leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches the whole process group; only the parent should react, by ending the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def parent_is_gone() -> bool:
    parent = multiprocessing.parent_process()
    return parent is not None and not parent.is_alive()
