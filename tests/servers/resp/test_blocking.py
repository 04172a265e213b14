"""Clients that wait: woken in order, without polling, and never with a message that nobody takes."""

from __future__ import annotations

import asyncio
import time

import pytest

from penstock import AsyncStore
from penstock.servers.access import make_user
from penstock.servers.resp.server import Server
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio


async def until_waiting(server: Server, count: int) -> None:
    while server.blocked.count() != count:
        await asyncio.sleep(0.005)


@pytest.fixture
async def stream(client: Client) -> str:
    await client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    return "s"


def block(client: Client, consumer: str = "c", milliseconds: int = 0) -> None:
    client.send("XREADGROUP", "GROUP", "g", consumer, "COUNT", 1, "BLOCK", milliseconds, "STREAMS", "s", ">")


async def test_those_who_came_first_are_served_first(server: Server, stream: str, client: Client, talk: Talk) -> None:
    waiting = [await talk() for _ in range(5)]
    for place, one in enumerate(waiting):
        block(one, f"c{place}")
        await until_waiting(server, place + 1)
    for place, one in enumerate(waiting):
        entry = await client("XADD", "s", "*", "n", place)
        [[_, [[got, _]]]] = await one.reply()
        assert got == entry
    assert server.blocked.count() == 0


async def test_many_entries_serve_many_clients_once_each(
    server: Server, stream: str, client: Client, talk: Talk
) -> None:
    waiting = [await talk() for _ in range(30)]
    for place, one in enumerate(waiting):
        block(one, f"c{place % 3}")
    await until_waiting(server, 30)
    for number in range(30):
        client.send("XADD", "s", "*", "n", number)
    sent = [await client.reply() for _ in range(30)]
    got = [(await one.reply())[0][1][0][0] for one in waiting]
    assert sorted(got) == sorted(sent)


async def test_a_wait_ends_in_time_with_nothing(stream: str, client: Client, talk: Talk) -> None:
    began = time.monotonic()
    block(client, milliseconds=200)
    assert await client.reply() is None
    assert await client("QNOTIFY", "g", "0.2", "nowhere", "s") is None
    assert 0.4 <= time.monotonic() - began < 30
    assert await client("QRECEIVE", "nowhere", "WAIT", "0.1") == []
    assert await client("QNOTIFY", "g", 0, "nowhere") is None


async def test_a_client_that_went_away_takes_nothing_with_it(
    server: Server, stream: str, client: Client, talk: Talk
) -> None:
    gone = await talk()
    block(gone, "gone")
    await until_waiting(server, 1)
    gone.close()
    # Not waited for: the news of its end may still lie unread when the entry comes.
    entry = await client("XADD", "s", "*", "n", 1)
    [[_, [[got, _]]]] = await client("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "BLOCK", 60_000, "STREAMS", "s", ">")
    assert got == entry
    [[_, consumer, _, attempts]] = await client("XPENDING", "s", "g", "-", "+", 10)
    assert (consumer, attempts) == (b"c", 1), "no attempt was counted for the one that went away"


async def test_what_was_received_for_a_client_that_went_away_is_given_back(
    server: Server, client: Client, talk: Talk
) -> None:
    await client("QADD", "q", 60, "x")
    gone = await talk()
    gone.send("QGET", "q", "g")
    while len(server.connections) < 2 or not any(one._under_way for one in server.connections):
        await asyncio.sleep(0)
    for connection in list(server.connections):
        if connection._under_way:
            connection.transport.abort()
    deadline = time.monotonic() + 60
    while (event := await client("QGET", "q", "g")) is None:
        assert time.monotonic() < deadline, "it is kept until its lease ends"
    assert event[1] == b"x"


async def test_a_lease_that_ends_wakes_those_who_wait(server: Server, client: Client, talk: Talk) -> None:
    await client("QADD", "q", 60, "x")
    event = await client("QGET", "q", "g", "EX", "0.3")
    told, receiver = await talk(), await talk()
    told.send("QNOTIFY", "g", 60, "other", "q")
    receiver.send("QRECEIVE", "q", "GROUP", "g", "WAIT", 60)
    await until_waiting(server, 2)
    began = time.monotonic()
    assert await told.reply() == b"q"
    [fields] = await receiver.reply()
    assert event[0] in fields
    assert time.monotonic() - began < 30
    assert await client("QACK", "q", "g", event[0]) == 0, "another holds it now"
    assert await receiver("QACK", "q", "g", event[0]) == 1


async def test_a_message_of_another_door_wakes_too(
    server: Server, store: AsyncStore, client: Client, talk: Talk
) -> None:
    client.send("QNOTIFY", "g", 30, "a", "b")
    await until_waiting(server, 1)
    await (await store.queue("b")).send(b"x")
    assert await client.reply() == b"b"


async def test_one_wait_at_several_streams_gets_one_answer(server: Server, client: Client, talk: Talk) -> None:
    for name in ("s", "t"):
        await client("XGROUP", "CREATE", name, "g", "$", "MKSTREAM")
    waiting = await talk()
    waiting.send("XREADGROUP", "GROUP", "g", "c", "COUNT", 1, "BLOCK", 0, "STREAMS", "s", "t", ">", ">")
    await until_waiting(server, 1)
    client.send("XADD", "s", "*", "n", 1)
    client.send("XADD", "t", "*", "n", 2)
    sent = {await client.reply(), await client.reply()}
    [[name, [[got, _]]]] = await waiting.reply()
    other = "t" if name == b"s" else "s"
    [[_, [[left, _]]]] = await client(
        "XREADGROUP", "GROUP", "g", "d", "COUNT", 9, "BLOCK", 60_000, "STREAMS", other, ">"
    )
    assert {got, left} == sent


async def test_a_right_taken_away_stops_a_client_that_waits(
    server: Server, stream: str, client: Client, talk: Talk
) -> None:
    waiting = await talk()
    block(waiting)
    await until_waiting(server, 1)
    server.users.replace([make_user("default", None, ["*"], ["send", "look"])])
    await client("XADD", "s", "*", "n", 1)
    assert "no right" in str(await waiting.reply())
    assert (await client("XPENDING", "s", "g"))[0] == 0


async def test_waiting_commands_hold_back_those_behind_them(
    server: Server, stream: str, client: Client, talk: Talk
) -> None:
    waiting = await talk()
    block(waiting)
    waiting.send("PING", "after")
    await until_waiting(server, 1)
    entry = await client("XADD", "s", "*", "n", 1)
    assert (await waiting.reply())[0][1][0][0] == entry
    assert await waiting.reply() == b"after"


async def test_a_stopping_server_answers_those_who_wait(
    server: Server, stream: str, client: Client, talk: Talk
) -> None:
    block(client)
    follower, listener = await talk(), await talk()
    follower.send("XREAD", "BLOCK", 0, "STREAMS", "s", "$")
    listener.send("QNOTIFY", "g", 60, "other")
    while server.blocked_clients != 3:
        await asyncio.sleep(0.005)
    await asyncio.wait_for(server.close(), 60)
    for one in (client, follower, listener):
        assert await one.reply() is None
        assert await one.is_hung_up()
