"""Two servers on one store: what was handed out through one is settled through either, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock import AsyncStore, connect_async
from penstock.servers.access import Users, make_users
from penstock.servers.resp.server import Server
from tests.conformance.engines import EngineRow
from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio
# Connects to the first or the second server.
Connect = Callable[[int], Awaitable[Client]]


@pytest.fixture
def url(tmp_path: Path, engine_row: EngineRow) -> str:
    return engine_row.fresh_url(tmp_path)


@pytest.fixture
async def first(url: str) -> AsyncIterator[AsyncStore]:
    async with await connect_async(url) as store:
        yield store


@pytest.fixture
async def connect(url: str, first: AsyncStore) -> AsyncIterator[Connect]:
    async with await connect_async(url) as other:
        servers = [Server(store, Users(make_users(None, {}))) for store in (first, other)]
        ports = [await server.listen("127.0.0.1", 0) for server in servers]
        opened: list[Client] = []

        async def connect(place: int) -> Client:
            client = await Client.connect(ports[place])
            opened.append(client)
            return client

        yield connect
        for client in opened:
            client.close()
        for server in servers:
            await server.close()


async def read(client: Client, consumer: str, count: int = 1) -> list[Any]:
    found = await client("XREADGROUP", "GROUP", "g", consumer, "COUNT", count, "STREAMS", "s", ">")
    return [entry[0] for entry in found[0][1]]


async def owners(client: Client) -> dict[Any, Any]:
    return {row[0]: row[1] for row in await client("XPENDING", "s", "g", "-", "+", 100)}


async def test_an_entry_that_was_claimed_is_acked_by_its_new_owner(connect: Connect) -> None:
    reader, claimer = await connect(0), await connect(1)
    await reader("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number in range(3):
        await reader("XADD", "s", "*", "n", number)
    first, second, third = await read(reader, "ann", 3)
    assert len(await claimer("XCLAIM", "s", "g", "bob", 0, first, second)) == 2
    assert await reader("XACK", "s", "g", first) == 0, "it was taken away from this connection"
    assert await reader("XACK", "s", "g", first, third) == 1, "also when it asks again"
    assert await owners(reader) == {first: b"bob", second: b"bob"}
    assert await claimer("XACK", "s", "g", first) == 1
    assert await claimer("XACK", "s", "g", first) == 0
    assert await reader("XACK", "s", "g", first) == 0
    # XACK names no consumer: who was never given the entry acks it for the group, as in Redis. It counts once.
    stranger = await connect(0)
    assert await stranger("XACK", "s", "g", second) == 1
    assert await claimer("XACK", "s", "g", second) == 0
    assert await owners(reader) == {}


async def test_the_same_holds_within_one_server(connect: Connect) -> None:
    reader, claimer = await connect(0), await connect(0)
    await reader("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    await reader("XADD", "s", "*", "n", 1)
    [entry] = await read(reader, "ann")
    await claimer("XAUTOCLAIM", "s", "g", "bob", 0, "0")
    assert await reader("XACK", "s", "g", entry) == 0
    await claimer("XCLAIM", "s", "g", "cid", 0, entry)
    assert await reader("XACK", "s", "g", entry) == 0
    assert await claimer("XACK", "s", "g", entry) == 1


async def test_a_connection_acks_for_all_the_consumers_it_receives_as(connect: Connect) -> None:
    """Connections of a pool are used by turns."""
    one, other = await connect(0), await connect(1)
    await one("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    for number in range(3):
        await one("XADD", "s", "*", "n", number)
    first, second = await read(one, "ann", 2)
    await read(one, "bob")
    await other("XCLAIM", "s", "g", "bob", 0, first)
    assert await one("XACK", "s", "g", first) == 1
    await other("XCLAIM", "s", "g", "ann", 0, second)
    assert await one("XACK", "s", "g", second) == 1, "the same consumer through another server"


async def test_an_entry_is_acked_once_through_both(connect: Connect) -> None:
    one, other = await connect(0), await connect(1)
    await one("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    await one("XADD", "s", "*", "n", 1)
    [entry] = await read(one, "ann")
    assert await other("XACK", "s", "g", entry, entry) == 1
    assert await one("XACK", "s", "g", entry) == 0


async def test_an_event_is_acked_once_through_both(connect: Connect) -> None:
    one, other = await connect(0), await connect(1)
    for client in (one, other):
        await client("CLIENT", "SETNAME", "ann")
    await one("QADD", "q", 60, "x")
    event, _ = await one("QGET", "q", "g")
    assert await other("QACK", "q", "g", event) == 1
    assert await one("QACK", "q", "g", event) == 0


async def test_the_clients_that_waited_at_a_killed_server_are_forgotten(connect: Connect, first: AsyncStore) -> None:
    client, waiting = await connect(0), await connect(1)

    def leave(ends_in: int) -> None:
        entry = {"ends_at": first.engine.now() + ends_in, "waiting": [["q", "g", 5]]}
        first.engine.record("resp_waiting", {"killed": msgspec.json.encode(entry).decode()})

    leave(60_000_000)
    [[_, groups]] = await client("QSTATUS", "q")
    assert groups[1][-1] == 5
    leave(0)
    [[_, groups]] = await client("QSTATUS", "q")
    assert groups == []
    waiting.send("QNOTIFY", "g", 20, "q")
    while (await client("QSTATUS", "q", "GROUPS", "g"))[0][1][1][-1] != 1:
        await asyncio.sleep(0.02)
    assert "killed" not in first.engine.ledger("resp_waiting"), "who publishes drops what is over"
