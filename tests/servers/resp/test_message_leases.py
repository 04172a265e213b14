"""Settling by id: a connection settles what it holds, and never another consumer's lease."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock import AsyncStore, StoreUnavailable
from penstock.servers.access import Users, hash_token, make_users
from penstock.servers.resp.server import Server
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio
VERBS = ["QACK", "QNAK", "QREJECT", "QRESCHEDULE", "QEXTEND"]


async def received(client: Client, *options: Any) -> dict[str, Any]:
    [fields] = await client("QRECEIVE", "q", *options)
    told: dict[str, Any] = {name.decode(): value for name, value in zip(fields[::2], fields[1::2], strict=True)}
    return {**told, "id": told["id"].decode()}


async def settled(client: Client, verb: str, id: str, *more: Any) -> Any:
    """What it led to; None when the lease is another's."""
    seconds = ("60",) if verb == "QEXTEND" else ()
    reply = await client(verb, "q", "default", id, *seconds, *more)
    return None if reply == 0 or str(reply).startswith("LEASELOST") else reply


async def state(store: AsyncStore, id: str) -> tuple[str, str]:
    last = (await (await store.queue("q")).audit(id))[-1]
    return str(last.event), last.by


@pytest.mark.parametrize("verb", VERBS)
async def test_a_late_consumer_leaves_the_lease_of_the_next_one_alone(
    store: AsyncStore, client: Client, talk: Talk, verb: str
) -> None:
    queue = await store.queue("q", max_retries=9)
    id = await queue.send(b"x")
    late, other = client, await talk()
    await received(late, "CONSUMER", "late", "LEASE", "0.05")
    again = await received(other, "CONSUMER", "other", "LEASE", "60", "WAIT", "10")
    for _ in range(2):
        assert await settled(late, verb, id) is None
    assert await state(store, id) == ("receive", "other")
    assert await settled(late, verb, id, "TOKEN", again["token"] - 1) is None
    assert await settled(other, verb, id) is not None
    assert (await state(store, id))[1] == "other"


@pytest.mark.parametrize("verb", VERBS)
async def test_nameless_connections_hold_for_themselves(
    store: AsyncStore, client: Client, talk: Talk, verb: str
) -> None:
    id = await (await store.queue("q", max_retries=9)).send(b"x")
    other = await talk()
    assert await client("QGET", "q", "default") == [id.encode(), b"x"]
    assert await settled(other, verb, id) is None
    assert await settled(client, verb, id) is not None


@pytest.mark.parametrize("verb", VERBS)
async def test_who_shows_the_token_may_settle_from_anywhere(
    store: AsyncStore, client: Client, talk: Talk, verb: str
) -> None:
    queue = await store.queue("q")
    id = await queue.send(b"x", id="00000000-0000-4000-8000-0000000000aa")
    token = (await received(client, "CONSUMER", "first"))["token"]
    other = await talk()
    assert await settled(other, verb, id) is None
    assert await settled(other, verb, id, "TOKEN", token + 1) is None
    assert await settled(other, verb, id, "TOKEN", token) is not None
    assert "token" in await other.error(verb, "q", "default", id, *(("9",) if verb == "QEXTEND" else ()), "TOKEN", 0)


async def test_a_token_of_another_door_is_good_here(store: AsyncStore, client: Client) -> None:
    queue = await store.queue("q")
    id = await queue.send(b"x")
    [delivery] = await queue.receive(consumer="python")
    assert await settled(client, "QACK", id) is None
    assert await client("QACK", "q", "default", id, "TOKEN", delivery.token) == 1
    assert await state(store, id) == ("ack", "python")


async def test_what_a_closed_connection_held_is_left_to_those_without_a_name(
    store: AsyncStore, server: Server, client: Client, talk: Talk
) -> None:
    first, second = [await client("QADD", "q", 60, "x") for _ in range(2)]
    gone, named = await talk(), await talk()
    await named("CLIENT", "SETNAME", "somebody")
    await gone("QGET", "q", "g")
    await gone("QRECEIVE", "q", "GROUP", "g", "CONSUMER", "else")
    assert await client("QACK", "q", "g", first) == 0
    gone.close()
    while len(server.connections) > 2:
        await asyncio.sleep(0.005)
    assert await named("QACK", "q", "g", first) == 0
    assert await client("QACK", "q", "g", second) == 0, "taken under a name"
    assert await client("QACK", "q", "g", first) == 1


async def test_a_name_holds_on_all_its_connections(store: AsyncStore, client: Client, talk: Talk) -> None:
    ids = [await client("QADD", "q", 60, "x") for _ in range(3)]
    one, two = await talk(), await talk()
    for each in (one, two):
        await each("CLIENT", "SETNAME", "worker-7")
    for _ in ids:
        await one("QGET", "q", "g")
    assert await client("QACK", "q", "g", ids[0]) == 0
    assert await two("QACK", "q", "g", ids[0]) == 1
    await one("CLIENT", "SETNAME", "worker-8")
    assert await one("QACK", "q", "g", ids[1]) == 1, "its own, whatever its name is now"


async def test_another_server_knows_names_but_not_connections(store: AsyncStore, client: Client) -> None:
    ids = [await client("QADD", "q", 60, "x") for _ in range(3)]
    await client("QGET", "q", "g")
    await client("QRECEIVE", "q", "GROUP", "g", "CONSUMER", "w")
    restarted = Server(store, Users(make_users(None, {})))
    try:
        await client("QGET", "q", "g")
        there = await Client.connect(await restarted.listen("127.0.0.1", 0))
        assert await there("QACK", "q", "g", ids[2]) == 0, "taken while it ran, by a connection that it does not know"
        assert await there("QACK", "q", "g", ids[0]) == 1, "taken before it began"
        assert await there("QACK", "q", "g", ids[1]) == 0
        await there("CLIENT", "SETNAME", "w")
        assert await there("QACK", "q", "g", ids[1]) == 1
        there.close()
    finally:
        await restarted.close()


async def test_users_hold_apart(store: AsyncStore) -> None:
    secrets = {"ada": "a token for ada", "alan": "a token for alan"}
    rows: dict[str, dict[str, object]] = {
        name: {"password_hash": None, "token_hash": hash_token(secret), "queues": ["*"], "rights": ["send", "receive"]}
        for name, secret in secrets.items()
    }
    server = Server(store, Users(make_users(None, rows)))
    port = await server.listen("127.0.0.1", 0)
    gone, alan, ada = [await Client.connect(port) for _ in range(3)]
    try:
        for client, name in ((gone, "ada"), (alan, "alan"), (ada, "ada")):
            assert await client("AUTH", name, secrets[name]) == b"OK"
        id = await gone("QADD", "q", 60, "x")
        await gone("QGET", "q", "g")
        gone.close()
        while len(server.connections) > 2:
            await asyncio.sleep(0.005)
        assert await alan("QACK", "q", "g", id) == 0
        assert await ada("QACK", "q", "g", id) == 1
    finally:
        alan.close()
        ada.close()
        await server.close()


async def test_what_the_store_could_not_do_may_be_said_again(
    server: Server, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await client("QADD", "q", 60, "x") for _ in range(2)]
    for _ in ids:
        await client("QGET", "q", "g")
    settle = server.backend.engine.settle

    def fail(*_: Any) -> Any:
        raise StoreUnavailable("busy")

    monkeypatch.setattr(server.backend.engine, "settle", fail)
    assert "TRYAGAIN" in await client.error("QACK", "q", "g", ids[0])
    assert "TRYAGAIN" in await client.error("QNAK", "q", "g", ids[1])
    monkeypatch.setattr(server.backend.engine, "settle", settle)
    assert await client("QACK", "q", "g", ids[0]) == 1
    assert await client("QNAK", "q", "g", ids[1]) == b"held"


async def test_an_ordered_queue_is_settled_in_order(store: AsyncStore, client: Client) -> None:
    queue = await store.queue("q", ordered=True)
    first, second, third = await queue.send_many([b"1", b"2", b"3"])
    assert len(await client("QRECEIVE", "q", "LIMIT", 3)) == 3
    for verb in ("QACK", "QREJECT"):
        assert (await client.error(verb, "q", "default", second)).startswith("OUTOFORDER")
    assert await client("QACK", "q", "default", first) == 1
    assert await client("QREJECT", "q", "default", second) == b"rejected"
    assert await client("QACK", "q", "default", third) == 1


async def test_ids_of_ones_own_are_held_too(client: Client, talk: Talk) -> None:
    await client("QLPUSH", "q", "order 7", "x")
    other = await talk()
    assert await client("QRPOP", "q") == [b"order 7", b"x"]
    assert await other("QACK", "q", "order 7") == 0
    assert await client("QACK", "q", "order 7") == 1
    assert await client("QACK", "q", "order 7") == 0
