"""CLIENT LIST, KILL and UNBLOCK: what is seen of connections, and what an administrator does with them."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.servers.access import make_user
from penstock.servers.resp.server import Server
from tests.servers.hashes import older_hash
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio


async def listed(client: Client, *words: Any) -> list[dict[str, str]]:
    lines = (await client("CLIENT", "LIST", *words)).decode().splitlines()
    return [dict(fact.split("=", 1) for fact in line.split(" ")) for line in lines]


async def blocked(server: Server, client: Client, count: int = 1) -> None:
    while server.blocked_clients < count:
        await client("PING")


async def test_a_client_is_listed_with_both_ends_and_what_it_does(client: Client, talk: Talk, server: Server) -> None:
    other = await talk()
    await other("CLIENT", "SETNAME", "other")
    await other("CLIENT", "SETINFO", "LIB-NAME", "mine")
    await other("CLIENT", "SETINFO", "LIB-VER", "1.2")
    await client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    other.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    await blocked(server, client)
    own, seen = await listed(client)
    assert own["flags"] == "N"
    assert (seen["name"], seen["flags"], seen["lib-name"], seen["lib-ver"]) == ("other", "b", "mine", "1.2")
    assert seen["addr"].startswith("127.0.0.1:")
    assert seen["addr"] != seen["laddr"] == own["laddr"]
    assert [one["id"] for one in await listed(client, "ID", own["id"], 999)] == [own["id"]]
    assert await listed(client, "TYPE", "pubsub") == []
    assert len(await listed(client, "TYPE", "normal")) == 2
    assert (await client("CLIENT", "INFO")).decode().startswith(f"id={own['id']} addr={own['addr']} ")


@pytest.mark.parametrize("by", ["ID", "ADDR", "old form", "USER"])
async def test_a_client_is_killed(by: str, client: Client, talk: Talk) -> None:
    victim = await talk()
    number = str(await victim("CLIENT", "ID"))
    [seen] = [one for one in await listed(client) if one["id"] == number]
    if by == "old form":
        assert await client("CLIENT", "KILL", seen["addr"]) == b"OK"
        assert await client.error("CLIENT", "KILL", "1.2.3.4:5") == "ERR No such client"
    else:
        value = {"ID": number, "ADDR": seen["addr"], "USER": "default"}[by]
        assert await client("CLIENT", "KILL", by, value) == 1
        assert await client("CLIENT", "KILL", "ID", number, "MAXAGE", 0) == 0
    assert await victim.is_hung_up()
    assert len(await listed(client)) == 1


async def test_who_kills_itself_is_answered_before(client: Client) -> None:
    assert await client("CLIENT", "KILL", "TYPE", "normal", "MAXAGE", 3600, "SKIPME", "no") == 0
    assert await client("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "no") == 1
    assert await client.is_hung_up()


async def test_a_killed_client_takes_nothing_with_it(client: Client, talk: Talk, server: Server) -> None:
    await client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    victim = await talk()
    number = await victim("CLIENT", "ID")
    victim.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    await blocked(server, client)
    assert await client("CLIENT", "KILL", "ID", number) == 1
    assert await victim.is_hung_up()
    entry = await client("XADD", "s", "*", "a", "1")
    [[_, [[found, _]]]] = await client("XREADGROUP", "GROUP", "g", "other", "STREAMS", "s", ">")
    assert found == entry


@pytest.mark.parametrize(
    "words",
    [
        ("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">"),
        ("XREAD", "BLOCK", 0, "STREAMS", "s", "$"),
        ("QNOTIFY", "g", 60, "s"),
    ],
    ids=lambda words: words[0],
)
@pytest.mark.parametrize("reason", [None, "TIMEOUT", "ERROR"])
async def test_a_client_that_waits_is_unblocked(
    words: tuple[Any, ...], reason: str | None, client: Client, talk: Talk, server: Server
) -> None:
    await client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    other = await talk()
    number = await other("CLIENT", "ID")
    assert await client("CLIENT", "UNBLOCK", number) == 0
    other.send(*words)
    await blocked(server, client)
    assert await client("CLIENT", "UNBLOCK", number, *([reason] if reason else [])) == 1
    reply = await other.reply()
    if reason == "ERROR":
        assert str(reply) == "UNBLOCKED client unblocked via CLIENT UNBLOCK"
    else:
        assert reply is None
    assert await other("PING") == b"PONG"
    assert server.blocked_clients == 0
    assert await client("CLIENT", "UNBLOCK", number) == 0


async def test_a_wait_for_an_address_is_unblocked_as_if_its_time_were_up(
    client: Client, talk: Talk, server: Server
) -> None:
    await client("QSEND", "q", "x", "ADDRESS", "a")
    other = await talk()
    number = await other("CLIENT", "ID")
    other.send("QWAIT", "q", "a")
    await blocked(server, client)
    assert await client("CLIENT", "UNBLOCK", number) == 1
    assert str(await other.reply()).startswith("TIMEOUT")


async def test_only_who_manages_everything_kills_and_unblocks(server: Server, talk: Talk) -> None:
    server.users.replace([make_user("keeper", older_hash("pw"), ["s"], ["look", "manage"])])
    keeper = await talk()
    await keeper("AUTH", "keeper", "pw")
    for words in (("KILL", "ID", "1"), ("KILL", "1.2.3.4:5"), ("UNBLOCK", "1")):
        assert (await keeper.error("CLIENT", *words)).startswith("NOPERM")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("KILL", "ID", "x"), "client-id should be greater than 0"),
        (("KILL", "ID", "1", "TYPE"), "syntax error"),
        (("KILL", "NOSUCH", "1"), "no filter"),
        (("KILL", "TYPE", "nosuch"), "Unknown client type"),
        (("KILL", "SKIPME", "perhaps"), "no filter"),
        (("UNBLOCK", "x"), "not an integer"),
        (("UNBLOCK", "1", "NOSUCH"), "TIMEOUT or ERROR"),
        (("UNBLOCK",), "wrong number"),
        (("LIST", "ID"), "syntax error"),
        (("SETINFO", "NOSUCH", "x"), "Unrecognized option"),
    ],
)
async def test_wrong_words_are_refused(client: Client, words: tuple[str, ...], told: str) -> None:
    assert told in await client.error("CLIENT", *words)
