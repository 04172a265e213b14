"""Replies of any size reach a client that reads on; what does not fit is not taken, and who stops reading is closed."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import AsyncStore, Outgoing
from penstock.settings import RespSettings
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio
MEBIBYTE = 1 << 20
SMALL = RespSettings(output_bytes=256 * 1024)


async def add(client: Client, stream: str, count: int, size: int = MEBIBYTE) -> list[Any]:
    return [await client("XADD", stream, "*", "n", str(number) + "x" * size) for number in range(count)]


async def in_progress(store: AsyncStore, queue: str, group: str) -> int:
    stats = await (await store.queue(queue)).stats()
    return stats[group].in_progress if group in stats else 0


@pytest.mark.parametrize("settings", [SMALL])
@pytest.mark.parametrize("command", [("XRANGE", "-", "+"), ("XREVRANGE", "+", "-")], ids=lambda one: one[0])
async def test_a_range_larger_than_all_buffers_is_read_whole(command: tuple[str, str, str], client: Client) -> None:
    ids = await add(client, "s", 24, MEBIBYTE // 2)
    name, start, end = command
    client.send(name, "s", start, end)
    client.send("PING")
    entries = await client.reply()
    assert [entry[0] for entry in entries] == (ids if name == "XRANGE" else ids[::-1])
    assert {len(entry[1][1]) // 1000 for entry in entries} == {524}
    assert await client.reply() == b"PONG"


async def test_an_entry_that_goes_while_a_range_is_read_has_no_fields(client: Client, talk: Talk) -> None:
    ids = await add(client, "s", 24)
    slow = await talk()
    slow.send("XRANGE", "s", "-", "+")
    await slow.wait_for_data()
    assert await client("XDEL", "s", ids[-1]) == 1
    entries = await slow.reply()
    assert [entry[0] for entry in entries] == ids
    assert entries[-1][1] is None
    assert entries[0][1] is not None


async def test_a_group_is_given_no_more_than_a_reply_may_have(client: Client, store: AsyncStore) -> None:
    ids = await add(client, "s", 20)
    await client("XGROUP", "CREATE", "s", "g", "0")
    got: list[Any] = []
    while (found := await client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">")) is not None:
        assert 1 <= len(found[0][1]) <= 4
        got += [entry[0] for entry in found[0][1]]
        assert await in_progress(store, "s", "g") == len(got)
    assert got == ids
    [[_, held]] = await client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", "0")
    assert 1 <= len(held) <= 4
    [[_, read]] = await client("XREAD", "STREAMS", "s", "0")
    assert 1 <= len(read) <= 4


async def test_a_claim_takes_no_more_than_a_reply_may_have(client: Client) -> None:
    ids = await add(client, "s", 20)
    await client("XGROUP", "CREATE", "s", "g", "0")
    while await client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "s", ">") is not None:
        pass
    claimed = await client("XCLAIM", "s", "g", "d", 0, *ids)
    assert [entry[0] for entry in claimed] == ids[: len(claimed)]
    assert 1 <= len(claimed) <= 4
    held = [row[0] for row in await client("XPENDING", "s", "g", "-", "+", 100, "d")]
    assert held == [entry[0] for entry in claimed], "nothing else was taken over"
    got: list[Any] = []
    cursor = "0-0"
    while True:
        cursor, entries, _ = await client("XAUTOCLAIM", "s", "g", "e", 0, cursor, "COUNT", 100)
        assert 1 <= len(entries) <= 4
        got += [entry[0] for entry in entries]
        if cursor == b"0-0":
            break
    assert got == ids
    cursor, entries, _ = await client("XAUTOCLAIM", "s", "g", "e", 0, ids[-1], "COUNT", 1)
    assert (cursor, [entry[0] for entry in entries]) == (b"0-0", ids[-1:])
    cursor, justids, _ = await client("XAUTOCLAIM", "s", "g", "f", 0, "0-0", "COUNT", 100, "JUSTID")
    assert (cursor, justids) == (b"0-0", ids), "ids alone are small"
    assert await client("XCLAIM", "s", "g", "e", 0, *ids, "JUSTID") == ids


async def test_a_pipeline_on_an_ordered_queue_is_given_no_more_than_a_reply_may_have(
    client: Client, talk: Talk, store: AsyncStore
) -> None:
    queue = await store.queue("q", ordered=True, shards=8)
    await queue.send_many([Outgoing(payload=b" " * MEBIBYTE, key=str(number)) for number in range(24)])
    await client("XGROUP", "CREATE", "q", "g", "0")
    other = await talk()
    for _ in range(3):
        other.send("XREADGROUP", "GROUP", "g", "c", "STREAMS", "q", ">")
    replies = [await other.reply() for _ in range(3)]
    brought = [len(reply[0][1]) for reply in replies if reply is not None]
    assert brought
    assert max(brought) <= 4
    assert await in_progress(store, "q", "g") == sum(brought)


@pytest.mark.parametrize("command", [("XREAD",), ("XREADGROUP", "GROUP", "g", "c")], ids=lambda one: one[0])
async def test_many_streams_share_the_bytes_of_a_reply(command: tuple[str, ...], client: Client) -> None:
    names = [f"s{number}" for number in range(6)]
    for name in names:
        await client("XGROUP", "CREATE", name, "g", "0", "MKSTREAM")
        await add(client, name, 3)
    place = ">" if "GROUP" in command else "0"
    found = await client(*command, "STREAMS", *names, *[place] * 6)
    assert [pair[0].decode() for pair in found] == names, "no stream waits for those named before it"
    assert sum(len(pair[1]) for pair in found) <= 10
    held = await client("XREADGROUP", "GROUP", "g", "c", "STREAMS", *names, *["0"] * 6)
    if "GROUP" in command:
        assert [len(pair[1]) for pair in held] == [len(pair[1]) for pair in found]


async def test_inspection_returns_no_more_than_a_reply_may_have(client: Client, store: AsyncStore) -> None:
    queue = await store.queue("q")
    await queue.send_many([b" " * MEBIBYTE] * 20)
    assert 1 <= len(await client("QPEEK", "q", "LIMIT", 100)) <= 4
    described = await client("XINFO", "STREAM", "q", "FULL", "COUNT", 0)
    assert 1 <= len(described[described.index(b"entries") + 1]) <= 4
    for delivery in await queue.receive(limit=20):
        await delivery.reject("broken")
    assert 1 <= len(await client("QDEAD", "q", "LIMIT", 100)) <= 4
    assert len(await client("QDEAD", "q", "LIMIT", 1)) == 1


async def test_exec_stops_to_bring_messages_when_its_reply_is_large(client: Client, store: AsyncStore) -> None:
    await client("XGROUP", "CREATE", "q", "g", "0", "MKSTREAM")
    for number in range(30):
        await client("XADD", "q", "*", "payload", str(number).encode() + b" " * MEBIBYTE)
    await client("MULTI")
    for _ in range(25):
        await client("QGET", "q", "g")
    await client("XAUTOCLAIM", "q", "g", "c", 0, "0-0")
    await client("XREADGROUP", "GROUP", "g", "c", "STREAMS", "q", ">")
    await client("QADD", "other", 60, "x")
    replies = await client("EXEC")
    brought = [reply for reply in replies[:25] if isinstance(reply, list)]
    assert [int(reply[1]) for reply in brought] == list(range(len(brought)))
    assert 16 <= len(brought) < 20
    for reply in replies[len(brought) : 27]:
        assert "bytes already" in str(reply)
    assert len(replies[27]) == 36, "what brings nothing is done"
    assert await in_progress(store, "q", "g") == len(brought), "what was not brought is not leased"
    assert int((await client("QGET", "q", "g"))[1]) == len(brought)


async def test_a_large_range_inside_multi_is_refused_instead_of_cut(client: Client) -> None:
    await add(client, "s", 20)
    await client("MULTI")
    await client("XRANGE", "s", "-", "+")
    await client("XREVRANGE", "s", "+", "-", "COUNT", 2)
    whole, some = await client("EXEC")
    assert "inside MULTI a range may have 4194304" in str(whole)
    assert len(some) == 2


@pytest.mark.parametrize(
    "command", [("QGET", "q", "g"), ("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "STREAMS", "q", ">")]
)
async def test_a_pipeline_of_receives_waits_for_its_client_to_read(
    command: tuple[Any, ...], client: Client, talk: Talk, store: AsyncStore
) -> None:
    await client("XGROUP", "CREATE", "q", "g", "0", "MKSTREAM")
    for number in range(40):
        await client("XADD", "q", "*", "payload", str(number).encode() + b" " * MEBIBYTE)
    slow = await talk()
    for _ in range(42):
        slow.send(*command)
    slow.send("PING")
    await slow.wait_for_data()
    await client("PING")
    assert await in_progress(store, "q", "g") < 30
    replies = [await slow.reply() for _ in range(43)]
    payloads = [reply[1] if command[0] == "QGET" else reply[0][1][0][1][1] for reply in replies[:40]]
    assert [int(payload) for payload in payloads] == list(range(40))
    assert replies[40:] == [None, None, b"PONG"]


async def test_many_clients_at_once_get_one_large_message_each(client: Client, talk: Talk) -> None:
    for number in range(30):
        await client("QADD", "q", "600", str(number).encode() + b" " * MEBIBYTE)
    others = [await talk() for _ in range(32)]
    for other in others:
        other.send("QGET", "q", "g")
    got = [await other.reply() for other in others]
    assert sorted(int(reply[1]) for reply in got if reply is not None) == list(range(30))


@pytest.mark.parametrize("settings", [RespSettings(request_seconds=1, output_bytes=64 * 1024)])
async def test_who_reads_slowly_is_served_and_who_stops_is_closed(client: Client, talk: Talk) -> None:
    await add(client, "s", 24)
    slow, stopped = await talk(), await talk()
    for other in (slow, stopped):
        other.send("XRANGE", "s", "-", "+")
        await other.wait_for_data()
    began = asyncio.get_running_loop().time()
    while asyncio.get_running_loop().time() - began < 4:
        await slow.read_some(256 * 1024)
        await asyncio.sleep(0.1)
    assert len(await slow.reply()) == 24
    with pytest.raises(ConnectionError):
        await stopped.reply()
