"""A send within the caller's own transaction, from an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

from penstock.domain.message import Draft
from penstock.engines.caller_connection import LockedConnection, opened
from penstock.engines.contract import Engine


async def send(engine: Engine, queue: str, messages: Sequence[Draft], transaction: object) -> list[str]:
    """A blocking connection is used right here: its caller blocks the loop with it anyway. An asynchronous one is used
    by a thread, because the send may wait for a lock that another task of this loop holds until it commits."""
    connection: Any = await opened(transaction)
    if not isinstance(getattr(connection, "lock", None), asyncio.Lock):
        return engine.send(queue, messages, connection)
    async with connection.lock:
        work = asyncio.get_running_loop().run_in_executor(
            None, partial(engine.send, queue, messages, LockedConnection(connection))
        )
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await _stop(work, connection)
            raise


async def _stop(work: asyncio.Future[list[str]], connection: Any) -> None:
    """The connection is the caller's again only when the thread has left it: cancel its statement, then wait for it."""
    stopping = asyncio.gather(connection.cancel_safe(), work, return_exceptions=True)
    while not stopping.done():
        try:
            await asyncio.shield(stopping)
        except asyncio.CancelledError:
            continue
