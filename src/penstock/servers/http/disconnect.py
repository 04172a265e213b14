"""Detect clients that disconnect while their request is processed, so that no message is leased for them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from penstock.servers.http.request import HttpRequest
from penstock.servers.http.state import http_state

T = TypeVar("T")


async def until_disconnect(
    request: Request, work: Coroutine[Any, Any, T], unwanted: Callable[[T], None], otherwise: T
) -> T:
    """The result of `work`, or `otherwise` if the server stops meanwhile. If the client disconnects the work is
    cancelled, and a result that came too late goes to `unwanted`. The body must have been read."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_until_closed(request))
    closing = asyncio.ensure_future(http_state(request).is_closing.wait())
    try:
        await asyncio.wait((working, leaving, closing), return_when=asyncio.FIRST_COMPLETED)
        # One more turn of the loop, to notice a disconnect at the moment of the result.
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


async def is_disconnected(request: HttpRequest) -> bool:
    """Whether the client has disconnected by now."""
    if request.connection is not None:
        return bool(request.connection.is_disconnected)
    leaving = asyncio.ensure_future(_until_closed(request))
    # It begins in the next turn, and is done in the same one if there is nothing to wait for.
    await asyncio.sleep(0)
    if leaving.done():
        return True
    leaving.cancel()
    return False


async def _until_closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
