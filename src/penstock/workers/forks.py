"""Handlers that fork. The forked process must exit when the handler returns: otherwise it would continue as a second
worker with the same leases and connections."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def ends_copies(call: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    """Wrap a call so that a process forked during it exits at its end."""
    return _awaited(call) if is_async else _called(call)


def _called(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(*arguments: Any) -> Any:
        process = os.getpid()
        try:
            return call(*arguments)
        finally:
            if os.getpid() != process:
                _exit()

    return called


def _awaited(call: Callable[..., Any]) -> Callable[..., Any]:
    async def awaited(*arguments: Any) -> Any:
        process = os.getpid()
        try:
            return await call(*arguments)
        finally:
            if os.getpid() != process:
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
