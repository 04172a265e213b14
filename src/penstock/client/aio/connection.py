"""From a URL to an asynchronous store."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Unpack

from penstock.client.aio.call import Operation, Phase
from penstock.client.aio.coalescer import Coalescer, run_each
from penstock.client.aio.store import AsyncStore
from penstock.client.connection import open_engine
from penstock.engines.connect_settings import ConnectSettings
from penstock.engines.contract import Engine


async def connect_async(url: str, **settings: Unpack[ConnectSettings]) -> AsyncStore:
    """As `connect`, for use in the running event loop: `async with await connect_async(url) as store`."""
    opener = Coalescer(asyncio.get_running_loop(), "penstock-opener", run_each)
    try:
        engine: Engine = await opener.result(
            Operation(partial(open_engine, url, **settings), Phase.ALONE, discard=lambda late: late.close())
        )
    finally:
        opener.end()
    opener.join()
    return AsyncStore(engine)
