"""Handlers that fork. The copy of the process must end with the handler: if it returned into the code of the worker,
it would go on as a second worker on the same leases and connections."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import Any


def ends_copies(call: Callable[..., Any], is_async: bool) -> Callable[..., Any]:
    """The same call; a process that was forked during the call exits at its end."""
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
    """As the interpreter would, without what belongs to the parent: no clean-up, no output of its buffers."""
    error = sys.exc_info()[1]
    if error is None:
        os._exit(0)
    if isinstance(error, SystemExit):
        os._exit(error.code if isinstance(error.code, int) else int(error.code is not None))
    traceback.print_exc()
    os._exit(1)
