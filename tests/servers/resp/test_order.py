"""Replies keep the order of their commands, and commands happen in that order, however they are merged."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from penstock import AsyncStore
from penstock.servers.resp.server import Server
from tests.servers.resp.client import Client, Talk, frame

pytestmark = pytest.mark.anyio


class Counted:
    """Stands in front of the engine and counts what reaches it."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        if not callable(found):
            return found

        def call(*arguments: Any, **options: Any) -> Any:
            self.counts[name] += 1
            return found(*arguments, **options)

        return call


def count_calls(server: Server) -> Counted:
    """Count the calls of the server's engine from now on."""
    engine: Any = Counted(server.store.engine)
    server.backend.engine = server.store.executor.engine = engine
    counted: Counted = engine
    return counted


async def test_a_mixed_pipeline_happens_in_order(client: Client) -> None:
    pipeline = [
        ("QGET", "q", "g"),
        ("QADD", "q", 60, "one"),
        ("PING", "between"),
        ("QGET", "q", "g", "EX", 0),
        ("QGET", "q", "g"),
        ("QADD", "q", 60, "two"),
        ("NOSUCH",),
        ("QSTATUS", "q"),
        ("QGET", "q", "g", "EX", 0),
        ("QFLUSH", "q"),
        ("QADD", "q", 60, "three"),
        ("QGET", "q", "g"),
    ]
    client.write(b"".join(frame(*words) for words in pipeline))
    replies = [await client.reply() for _ in pipeline]
    assert replies[0] is None
    assert replies[2] == b"between"
    assert replies[3] == [replies[1], b"one"]
    assert replies[4] is None
    assert "unknown command" in str(replies[6])
    assert replies[7][0][1][1][7] == 1, "done, when nothing else was received yet"
    assert replies[8] == [replies[5], b"two"]
    assert replies[9] == b"OK"
    assert replies[11] == [replies[10], b"three"]


async def test_commands_of_many_connections_share_a_transaction(server: Server, talk: Talk) -> None:
    engine = count_calls(server)
    clients = [await talk() for _ in range(20)]
    await clients[0]("QADD", "warm", 60, "x")
    engine.counts.clear()
    for client in clients:
        client.write(frame("QADD", "q", 60, "x") * 10)
    ids = [await client.reply() for client in clients for _ in range(10)]
    assert len(set(ids)) == 200
    assert engine.counts["send"] <= 20
    engine.counts.clear()
    for client in clients:
        client.write(frame("QGET", "q", "g") * 10)
    events = [await client.reply() for client in clients for _ in range(10)]
    assert {event[0] for event in events} == set(ids), "each event to one client only"
    assert engine.counts["receive"] + engine.counts["receive_each"] <= 20
    engine.counts.clear()
    for place, client in enumerate(clients):
        own = events[place * 10 : place * 10 + 10]
        client.write(b"".join(frame("QACK", "q", "g", event[0]) for event in own))
    assert [await client.reply() for client in clients for _ in range(10)] == [1] * 200
    assert engine.counts["settle"] <= 20
    assert engine.counts["leases"] == 0, "leases given out lately are remembered"


async def test_clients_never_share_a_receive_of_an_ordered_queue(store: AsyncStore, talk: Talk) -> None:
    queue = await store.queue("ordered", ordered=True, shards=4)
    for number in range(8):
        await queue.send(b"%d" % number, key="same")
    clients = [await talk() for _ in range(4)]
    for client in clients:
        client.send("QGET", "ordered", "g")
    events = [await client.reply() for client in clients]
    assert [event[1] for event in events if event] == [b"0"], "one message of a key at a time"


async def test_multi_is_one_transaction_with_all_replies(server: Server, client: Client, talk: Talk) -> None:
    engine = count_calls(server)
    assert await client("MULTI") == b"OK"
    for words in (("QADD", "q", 60, "a"), ("QGET", "q", "g"), ("QACK", "q", "g", "7"), ("PING",), ("QSTATUS", "q")):
        assert await client(*words) == b"QUEUED"
    other = await talk()
    assert (await other("QGET", "q", "g")) is None, "nothing happens before EXEC"
    added, got, acked, pong, status = await client("EXEC")
    assert (acked, pong) == (0, b"PONG")
    assert status[0][0] == b"q"
    assert engine.counts["together"] == 1
    assert got == [added, b"a"]
    assert await client("QACK", "q", "g", added) == 1


async def test_a_wrong_command_spoils_multi(client: Client) -> None:
    await client("MULTI")
    assert "wrong number" in await client.error("QADD", "q")
    assert await client("QADD", "q", 60, "x") == b"QUEUED"
    assert "EXECABORT" in await client.error("EXEC")
    assert (await client("QGET", "q", "g")) is None
    assert "without MULTI" in await client.error("EXEC")
    assert "without MULTI" in await client.error("DISCARD")
    await client("MULTI")
    assert "nested" in await client.error("MULTI")
    assert await client("QADD", "q", 60, "x") == b"QUEUED"
    assert await client("DISCARD") == b"OK"
    assert (await client("QGET", "q", "g")) is None


async def test_what_fails_inside_multi_fails_alone(client: Client) -> None:
    await client("MULTI")
    await client("QADD", "q", 60, "x")
    await client("QNAK", "q", "g", "019a8c3e-7b2d-7abc-8def-00000000002a")
    await client("QGET", "q", "g")
    added, failed, got = await client("EXEC")
    assert "LEASELOST" in str(failed)
    assert got == [added, b"x"]


async def test_what_the_store_refuses_inside_multi_is_refused_alone(client: Client) -> None:
    await client("QSEND", "q", "first", "ADDRESS", "taken")
    await client("MULTI")
    await client("QSEND", "q", "before")
    await client("QSEND", "q", "refused", "ADDRESS", "taken")
    await client("QSEND", "q", "after")
    before, refused, after = await client("EXEC")
    assert "DUPLICATEADDRESS" in str(refused)
    assert [(await client("QGET", "q", "g"))[0] for _ in range(3)][1:] == [before, after]
    assert await client("QGET", "q", "g") is None


async def test_nothing_waits_inside_multi(client: Client) -> None:
    await client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    await client("MULTI")
    await client("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    await client("QNOTIFY", "g", 60, "s")
    assert await asyncio.wait_for(client("EXEC"), 60) == [None, None]


async def test_a_small_mistake_does_not_disturb_others_in_the_group(talk: Talk) -> None:
    clients = [await talk() for _ in range(5)]
    for place, client in enumerate(clients):
        client.send("QADD", "q", 60 if place != 2 else -1, "x")
        client.send("QSEND", "m", "x", "ADDRESS", "same")
    replies = [(await client.reply(), await client.reply()) for client in clients]
    assert ["expireSeconds" in str(first) for first, _ in replies] == [False, False, True, False, False]
    assert sum("DUPLICATEADDRESS" in str(second) for _, second in replies) == 4
