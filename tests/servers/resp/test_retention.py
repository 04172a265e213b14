"""Events and entries stay until their own time is over, whoever has finished with them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import AsyncStore
from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio


async def sweep_past_history(client: Client, store: AsyncStore, *queues: str) -> None:
    """History is over at once: what it alone keeps is gone after two sweeps."""
    for queue in queues:
        assert await client("QPOLICY", queue, "history_seconds", 0)
    for _ in range(3):
        await store.sweep()


async def taken(client: Client, queue: str, group: str) -> list[Any]:
    found = []
    while (event := await client("QGET", queue, group, "EX", 0)) is not None:
        found.append(event[1])
    return found


async def test_a_group_that_comes_late_gets_what_others_have_finished(client: Client, store: AsyncStore) -> None:
    for number in range(3):
        await client("QADD", "q", "600", str(number))
    assert len(await taken(client, "q", "early")) == 3
    await sweep_past_history(client, store, "q")
    assert await taken(client, "q", "late") == [b"0", b"1", b"2"]


async def test_an_event_leaves_when_its_own_time_is_over(client: Client, store: AsyncStore) -> None:
    await client("QADD", "q", "0.2", "short")
    await client("QADD", "q", "600", "long")
    assert (await taken(client, "q", "early"))[-1] == b"long"
    await asyncio.sleep(0.25)
    await sweep_past_history(client, store, "q")
    messages = await store.executor.read(lambda: store.engine.browse("q", 0, None, 10))
    assert [one.payload for one in messages] == [b"long"]
    assert await taken(client, "q", "late") == [b"long"]


async def test_entries_of_a_stream_stay_until_they_are_trimmed(client: Client, store: AsyncStore) -> None:
    for stream in ("read", "unread"):
        for number in range(5):
            await client("XADD", stream, "*", "n", number)
    await client("XGROUP", "CREATE", "read", "g", "0")
    [[_, entries]] = await client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "read", ">")
    assert await client("XACK", "read", "g", *(entry[0] for entry in entries)) == 5
    await sweep_past_history(client, store, "read", "unread")
    for stream in ("read", "unread"):
        assert await client("XLEN", stream) == 5
        assert len(await client("XRANGE", stream, "-", "+")) == 5
    assert await client("XTRIM", "read", "MAXLEN", 2) == 3
    assert await client("XLEN", "read") == 2


async def test_a_queue_of_another_door_keeps_its_own_history(client: Client, store: AsyncStore) -> None:
    queue = await store.queue("work", history_seconds=0)
    await queue.send(1)
    assert len(await taken(client, "work", "default")) == 1
    for _ in range(3):
        await store.sweep()
    assert await client("XLEN", "work") == 0
