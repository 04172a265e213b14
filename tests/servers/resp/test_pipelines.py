"""Pipelines of the same command, which become one call: each command is still answered for itself."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock import AsyncStore
from penstock.servers.resp.lease_cache import LeaseCache
from penstock.servers.resp.message_leases import MessageLeases
from penstock.servers.resp.server import Server
from tests.servers.resp.client import Client, Talk, frame
from tests.servers.resp.test_order import count_calls

pytestmark = pytest.mark.anyio


async def pipeline(client: Client, *calls: tuple[object, ...]) -> list[object]:
    client.write(b"".join(frame(*words) for words in calls))
    return [await client.reply() for _ in calls]


async def test_only_the_one_at_fault_is_refused(store: AsyncStore, client: Client) -> None:
    await store.queue("small", max_payload_bytes=10)
    calls = [("QADD", "small", 60, "x" * (11 if place == 3 else 10)) for place in range(8)]
    replies = await pipeline(client, *calls)
    assert ["larger" in str(one) or "bytes" in str(one) for one in replies] == [place == 3 for place in range(8)]
    got = await pipeline(client, *[("QGET", "small", "g")] * 9)
    assert [one[0] for one in got if one] == [one for place, one in enumerate(replies) if place != 3]  # type: ignore[index]
    entries = await pipeline(client, *(("XADD", "small", "*", "payload", "x" * size) for size in (1, 11, 2)))
    assert [b"-" in one if isinstance(one, bytes) else "ERR" in str(one) for one in entries] == [True, True, True]
    assert sum(isinstance(one, bytes) for one in entries) == 2


async def test_a_run_ends_where_something_differs(client: Client) -> None:
    calls = [
        ("QADD", "a", 60, "1"),
        ("QADD", "a", 30, "2"),
        ("QADD", "b", 30, "3"),
        ("QADD", "b", 30),
        ("qadd", "b", 30, "4"),
        ("QADD", "b", 30, "5", "NOBLOCK"),
        ("QGET", "a", "g"),
        ("QGET", "a", "g"),
        ("QGET", "a", "h"),
        ("QGET", "b", "g"),
    ]
    replies = await pipeline(client, *calls)
    assert "wrong number" in str(replies[3])
    assert replies[5] == b"OK"
    assert [one[1] for one in replies[6:]] == [b"1", b"2", b"1", b"3"]  # type: ignore[index]


async def test_more_is_asked_for_than_there_is(client: Client) -> None:
    await client("HELLO", 3)
    await pipeline(client, *(("XADD", "s", "*", "n", number) for number in range(5)))
    await client("XGROUP", "CREATE", "s", "g", 0)
    read = ("XREADGROUP", "GROUP", "g", "c", "COUNT", 2, "STREAMS", "s", ">")
    replies = await pipeline(client, *[read] * 4)
    assert [len(one[b"s"]) if one else 0 for one in replies] == [2, 2, 1, 0]  # type: ignore[index]
    names = [entry[0] for one in replies if one for entry in one[b"s"]]  # type: ignore[index]
    acks = await pipeline(client, *(("XACK", "s", "g", name) for name in [*names, names[0], b"1-1", b"nonsense"]))
    assert acks[:7] == [1, 1, 1, 1, 1, 0, 0]
    assert "Invalid stream ID" in str(acks[7])


async def test_acks_that_are_not_remembered_are_found(server: Server, client: Client, talk: Talk) -> None:
    await pipeline(client, *[("QADD", "q", 60, "x")] * 6)
    got = await pipeline(client, *[("QGET", "q", "g")] * 6)
    names = [one[0] for one in got]  # type: ignore[index]
    server.backend.message_leases = MessageLeases(server.backend)
    assert await pipeline(await talk(), *(("QACK", "q", "g", name) for name in names[:3])) == [1, 1, 1]
    assert await pipeline(client, *(("QACK", "q", "g", name) for name in names)) == [0, 0, 0, 1, 1, 1]


async def test_an_ack_that_is_said_twice_counts_once(client: Client) -> None:
    await pipeline(client, *[("QADD", "q", 60, "x")] * 2)
    names = [one[0] for one in await pipeline(client, *[("QGET", "q", "g")] * 2)]  # type: ignore[index]
    acks = await pipeline(client, *(("QACK", "q", "g", name) for name in (names[0], names[0], names[1])))
    assert acks == [1, 0, 1]


async def test_receives_of_an_ordered_queue_stay_apart(store: AsyncStore, client: Client) -> None:
    queue = await store.queue("ordered", ordered=True, shards=4)
    for number in range(3):
        await queue.send(b"%d" % number, key="same")
    got = await pipeline(client, *[("QGET", "ordered", "g")] * 3)
    assert [one and one[1] for one in got] == [b"0", None, None]  # type: ignore[index]


async def test_a_pipeline_is_one_call_of_the_engine(server: Server, client: Client) -> None:
    await client("QADD", "q", 60, "x")
    engine = count_calls(server)
    await pipeline(client, *[("QADD", "q", 60, "x")] * 100)
    got = await pipeline(client, *[("QGET", "q", "g")] * 100)
    acks = await pipeline(client, *(("QACK", "q", "g", one[0]) for one in got))  # type: ignore[index]
    assert acks == [1] * 100
    assert (engine.counts["send"], engine.counts["receive_each"], engine.counts["settle"]) == (1, 1, 1)


async def test_what_is_remembered_is_bounded() -> None:
    remembered: LeaseCache[tuple[int, int]] = LeaseCache(most=100)
    for number in range(1000):
        remembered.put("q", f"g{number % 7}", {b"%d" % number: (number, number)})
    assert 100 <= len(remembered) <= 202
    assert remembered.take("q", f"g{999 % 7}", [b"999", b"999", b"0"]) == [(999, 999), None, None]


# -- streams ---------------------------------------------------------------------------------------------------------


async def test_an_entry_is_there_at_once_whatever_delay_its_queue_has(store: AsyncStore, client: Client) -> None:
    queue = await store.queue("late", delay_seconds=60)
    first, second = await pipeline(client, ("XADD", "late", "*", "a", 1), ("XADD", "late", "MAXLEN", 9, "*", "a", 2))
    assert [entry[0] for entry in await client("XRANGE", "late", "-", "+")] == [first, second]
    await client("QADD", "late", 600, "x")
    assert (await queue.stats(group="default")).held == 1


async def test_who_follows_a_stream_is_woken(server: Server, client: Client, talk: Talk) -> None:
    before = await client("XADD", "s", "*", "n", 0)
    followers = [await talk() for _ in range(20)]
    for follower in followers:
        follower.send("XREAD", "BLOCK", 0, "STREAMS", "other", "s", "$", "$")
    while server.blocked_clients < 20:
        await asyncio.sleep(0.005)
    entry = await client("XADD", "s", "*", "n", 1)
    for follower in followers:
        assert await follower.reply() == [[b"s", [[entry, [b"n", b"1"]]]]]
    assert server.blocked_clients == 0
    assert [one[0] for one in (await client("XREAD", "STREAMS", "s", before))[0][1]] == [entry]


async def test_following_ends_in_time_and_when_the_server_stops(server: Server, client: Client, talk: Talk) -> None:
    began = time.monotonic()
    assert await client("XREAD", "BLOCK", 60, "STREAMS", "s", "$") is None
    assert time.monotonic() - began >= 0.06
    client.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    gone = await talk()
    gone.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    while server.blocked_clients < 2:
        await asyncio.sleep(0.005)
    gone.close()
    while server.blocked_clients > 1:
        await asyncio.sleep(0.005)
    await asyncio.wait_for(server.close(), 60)
    assert await client.reply() is None, "it is answered first, as if its time were up"
    assert await client.is_hung_up()


async def test_trimming_needs_the_right_to_manage(client: Client, server: Server) -> None:
    from penstock.servers.access import make_user

    await client("XADD", "s", "*", "a", 1)
    server.users.replace([make_user("default", None, ["*"], ["send", "look"])])
    assert "NOPERM" in await client.error("XADD", "s", "MAXLEN", 1, "*", "a", 2)
    assert "NOPERM" in await client.error("XTRIM", "s", "MAXLEN", 0)
    assert "NOPERM" in await client.error("XDEL", "s", "1-1")
    assert await client("XLEN", "s") == 1


async def test_expired_entries_are_gone_from_every_view(client: Client) -> None:
    await client("QADD", "q", "0.05", "brief")
    kept = await client("XADD", "q", "*", "a", 1)
    while await client("XLEN", "q") != 1:
        await asyncio.sleep(0.01)
    assert [entry[0] for entry in await client("XRANGE", "q", "-", "+")] == [kept]
    assert [entry[0] for entry in await client("XREVRANGE", "q", "+", "-", "COUNT", 1)] == [kept]
    assert [entry[0] for entry in (await client("XREAD", "COUNT", 1, "STREAMS", "q", 0))[0][1]] == [kept]
