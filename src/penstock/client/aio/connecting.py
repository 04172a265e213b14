"""From a URL to an asynchronous store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from penstock.client.aio.call import Call
from penstock.client.aio.gathering import Gatherer, run_each
from penstock.client.aio.store import AsyncStore
from penstock.client.connecting import open_engine
from penstock.engines.contract import Engine


async def connect_async(url: str, **settings: Any) -> AsyncStore:
    """As `connect`, for use in the running event loop: `async with await connect_async(url) as store`."""
    opener = Gatherer(asyncio.get_running_loop(), "penstock-opener", run_each)
    try:
        engine: Engine = await opener.answer(
            Call(partial(open_engine, url, **settings), unwanted=lambda late: late.close())
        )
    finally:
        opener.end()
    opener.join()
    return AsyncStore(engine)
