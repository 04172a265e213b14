"""Handlers that fork. The forked process must exit when the handler returns: otherwise it would continue as a second
worker with the same leases and connections."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

# How many forks lie between this process and the first. Reading it is far cheaper than asking for the process id.
_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


def ends_copies(call: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    """Wrap a call so that a process forked during it exits at its end."""
    return _awaited(call) if is_async else _called(call)


def _called(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        forks = _forks
        try:
            return call(*arguments)
        finally:
            if _forks != forks:
                _exit()

    return called


def _awaited(call: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*arguments: Any) -> Any:
        forks = _forks
        try:
            return await call(*arguments)
        finally:
            if _forks != forks:
                _exit()

    return awaited


def _exit() -> None:
    """Exit with the status that the interpreter would use, without cleanup and without flushing the parent's
    buffers."""
    error = sys.exc_info()[1]
    if error is None:
        os._exit(0)
    if isinstance(error, SystemExit):
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    traceback.print_exc()
    os._exit(1)
