"""Answers that take a while: the client may go away meanwhile, and must not take a message with it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from penstock.servers.http.routing import EXCHANGE
from penstock.servers.http.site import site_of

T = TypeVar("T")


async def attended(request: Request, work: Coroutine[Any, Any, T], unwanted: Callable[[T], None], otherwise: T) -> T:
    """The outcome of `work`, or `otherwise` when the server stops meanwhile. When the client is gone the work is
    cancelled, and an outcome that came too late goes to `unwanted`. The body must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_gone(request))
    closing = asyncio.ensure_future(site_of(request).is_closing.wait())
    try:
        await asyncio.wait((working, leaving, closing), return_when=asyncio.FIRST_COMPLETED)
        # One more turn: a client that went away in the very moment of the answer is noticed too.
        await asyncio.sleep(0)
        if leaving.done():
            raise ClientDisconnect
        return working.result() if working.done() else otherwise
    except BaseException:
        if working.done() and not working.cancelled() and working.exception() is None:
            unwanted(working.result())
        raise
    finally:
        for task in (working, leaving, closing):
            if not task.done():
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def is_gone(request: Request) -> bool:
    """Whether the client has hung up by now; for answers that did not take long."""
    exchange = request.scope.get(EXCHANGE)
    if exchange is not None:
        return bool(exchange.is_gone)
    leaving = asyncio.ensure_future(_until_gone(request))
    # It begins in the next turn, and is done in the same one if there is nothing to wait for.
    await asyncio.sleep(0)
    if leaving.done():
        return True
    leaving.cancel()
    return False


async def _until_gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
