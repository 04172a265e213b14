"""What a client leaves behind: nothing. More bad conversations need no more memory than those before them."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from penstock import connect_async
from penstock.servers.access import Users, make_users
from penstock.servers.resp.connection import Connection
from penstock.servers.resp.server import Server
from penstock.servers.resp.session import ClientSession
from tests.servers.fuzz.frames import Mutator
from tests.servers.fuzz.test_live_server import SEED, Attacker, make_burst

CONNECTIONS_EACH = 400
AT_ONCE = 20
# Interned words, statement caches and the like; connections that were kept would be several times that.
GROWTH_BYTES = 200_000


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_clients_leave_nothing_behind(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    mutator = Mutator(SEED)
    async with await connect_async(f"sqlite:///{tmp_path}/store.db") as store:
        server = Server(store, Users(make_users(None, {})))
        port = await server.listen("127.0.0.1", 0)
        await _converse(port, mutator)
        tracemalloc.start()
        try:
            await _converse(port, mutator)
            before = _in_use()
            await _converse(port, mutator)
            after = _in_use()
        finally:
            tracemalloc.stop()
        await server.close()
    del server
    gc.collect()
    print(f"{(after - before) / 1000:+.0f} kB over {CONNECTIONS_EACH} connections")
    assert after - before < GROWTH_BYTES
    assert not [one for one in gc.get_objects() if isinstance(one, Connection | ClientSession)]


async def _converse(port: int, mutator: Mutator) -> None:
    loop = asyncio.get_running_loop()
    left = CONNECTIONS_EACH

    async def talk() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            burst, _ = make_burst(mutator)
            _, attacker = await loop.create_connection(partial(Attacker, burst), "127.0.0.1", port)
            await asyncio.wait_for(attacker.ended, 60)

    await asyncio.gather(*(talk() for _ in range(AT_ONCE)))


def _in_use() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
