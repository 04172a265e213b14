"""The same command of many clients is coalesced into one call, and each client gets its own reply."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock import AsyncStore
from penstock.servers.resp.server import Server
from tests.servers.resp.client import PATIENCE_SECONDS, Client, Talk, frame
from tests.servers.resp.test_order import count_calls

pytestmark = pytest.mark.anyio
Join = Callable[[int], Awaitable[None]]
Hold = Callable[[], Join]


@pytest.fixture
def hold(server: Server, monkeypatch: pytest.MonkeyPatch) -> Hold:
    """Holds commands back from now on; what it gives lets them go when this many clients have joined."""

    def begin() -> Join:
        coalescer = server.store.executor._writes
        start_group = coalescer._start_group
        monkeypatch.setattr(coalescer, "_start_group", lambda: None)

        async def let_go(count: int) -> None:
            await until(lambda: _waiting(server) == count)
            monkeypatch.setattr(coalescer, "_start_group", start_group)
            start_group()

        return let_go

    return begin


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.001)


async def several(talk: Talk, count: int) -> list[Client]:
    return [await talk() for _ in range(count)]


async def test_each_is_told_its_own_ids_and_only_the_one_at_fault_is_refused(
    store: AsyncStore, talk: Talk, hold: Hold
) -> None:
    queue = await store.queue("small", max_payload_bytes=10)
    clients = await several(talk, 5)
    let_go = hold()
    for place, client in enumerate(clients):
        client.write(b"".join(frame("QADD", "small", 60, f"{place}" * (n + 9 * (place == 2))) for n in (1, 2)))
    await let_go(5)
    replies = [await client.reply() for client in clients for _ in range(2)]
    assert [place for place, one in enumerate(replies) if not isinstance(one, bytes)] == [5]
    payloads = [(await queue.find(one.decode())).payload for one in replies if isinstance(one, bytes)]
    assert payloads == [b"0", b"00", b"1", b"11", b"2222222222", b"3", b"33", b"4", b"44"]


async def test_it_is_one_call_of_the_engine(server: Server, talk: Talk, hold: Hold) -> None:
    clients = await several(talk, 7)
    engine = count_calls(server)
    events: list[Any] = [None] * 7
    for words in (("QADD", "q", 60, "x"), ("QGET", "q", "g"), ("QACK", "q", "g")):
        let_go = hold()
        for client, event in zip(clients, events, strict=True):
            client.send(*words, *([event[0]] if words[0] == "QACK" else []))
        await let_go(7)
        events = [await client.reply() for client in clients]
    assert events == [1] * 7
    assert (engine.counts["send"], engine.counts["receive_each"], engine.counts["settle"]) == (1, 1, 1)


async def test_a_disconnected_client_is_dropped_before_the_receive_begins(
    store: AsyncStore, server: Server, talk: Talk, hold: Hold
) -> None:
    queue = await store.queue("q")
    await queue.send_many([b"first", b"second", b"third"])
    clients = await several(talk, 3)
    let_go = hold()
    for place, client in enumerate(clients, 1):
        client.send("QGET", "q", "default")
        await until(lambda place=place: _waiting(server) == place)  # type: ignore[misc]
    _vanish(clients[1])
    await until(lambda: len(server.connections) == 2)
    await let_go(3)
    assert [(await clients[place].reply())[1] for place in (0, 2)] == [b"first", b"second"]
    [left] = await queue.receive()
    assert (left.payload, left.attempt) == (b"third", 1)


async def test_what_was_received_for_a_disconnected_client_is_given_back(
    store: AsyncStore, server: Server, talk: Talk, hold: Hold, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = await store.queue("q")
    await queue.send_many([b"first", b"second", b"third"])
    clients = await several(talk, 3)
    let_go = hold()
    for place, client in enumerate(clients, 1):
        client.send("QGET", "q", "default")
        await until(lambda place=place: _waiting(server) == place)  # type: ignore[misc]
    receive_each, received, may_return = server.store.engine.receive_each, threading.Event(), threading.Event()

    def held(*arguments: Any) -> Any:
        receipts = receive_each(*arguments)
        received.set()
        assert may_return.wait(PATIENCE_SECONDS)
        return receipts

    monkeypatch.setattr(server.store.engine, "receive_each", held)
    await let_go(3)
    await asyncio.to_thread(received.wait, PATIENCE_SECONDS)
    _vanish(clients[1])
    await until(lambda: len(server.connections) == 2)
    may_return.set()
    assert [(await clients[place].reply())[1] for place in (0, 2)] == [b"first", b"third"]
    [again] = await queue.receive(wait_seconds=PATIENCE_SECONDS)
    assert (again.payload, again.attempt) == (b"second", 1), "nobody had it"


async def test_entries_go_to_the_consumer_that_asked_in_the_protocol_it_speaks(talk: Talk, hold: Hold) -> None:
    clients = await several(talk, 3)
    await clients[0]("XGROUP", "CREATE", "s", "g", 0, "MKSTREAM")
    entries = [await clients[0]("XADD", "s", "*", "n", number) for number in range(5)]
    await clients[0]("XREADGROUP", "GROUP", "g", "zero", "COUNT", 1, "STREAMS", "s", ">")
    await clients[1]("HELLO", 3)
    let_go = hold()
    for client, consumers in zip(clients, (["one"], ["two"], ["three", "four"]), strict=True):
        reads = [frame("XREADGROUP", "GROUP", "g", one, "COUNT", 1, "STREAMS", "s", ">") for one in consumers]
        client.write(b"".join(reads))
    await let_go(4)
    replies = [await clients[0].reply(), await clients[1].reply(), *[await clients[2].reply() for _ in range(2)]]
    assert isinstance(replies[1], dict)
    pairs = [list(one.items()) if isinstance(one, dict) else one for one in replies]
    assert {one[0][1][0][0] for one in pairs} == set(entries[1:])
    for consumer, one in zip(("one", "two", "three", "four"), pairs, strict=True):
        [held] = await clients[0]("XPENDING", "s", "g", "-", "+", 9, consumer)
        assert held[0] == one[0][1][0][0]


async def test_an_ack_of_something_unknown_is_only_its_own_clients_matter(talk: Talk, hold: Hold) -> None:
    clients = await several(talk, 3)
    for _ in range(2):
        await clients[0]("QADD", "q", 60, "x")
    names = [(await clients[place]("QGET", "q", "g"))[0] for place in (0, 2)]
    let_go = hold()
    for client, name in zip(clients, (names[0], b"nothing of the kind", names[1]), strict=True):
        client.send("QACK", "q", "g", name)
    await let_go(3)
    assert [await client.reply() for client in clients] == [1, 0, 1]


async def test_what_comes_before_another_command_is_begun_before(server: Server, client: Client) -> None:
    await client("CLIENT", "SETNAME", "early")
    await client("QADD", "q", 60, "x")
    client.write(frame("QGET", "q", "g") + frame("CLIENT", "SETNAME", "late"))
    assert (await client.reply())[1] == b"x"
    assert await client.reply() == b"OK"
    [held] = await client("XPENDING", "q", "g", "-", "+", 9)
    assert held[1] == b"early"


def _vanish(client: Client) -> None:
    """With a reset: a mere end of what it sends would leave it free to read its reply."""
    writer = client._writer
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


def _waiting(server: Server) -> int:
    return server.store.executor._writes._pending
