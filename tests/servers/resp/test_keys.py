"""DEL, SCAN and the other commands on keys: what they find, what they remove, and who may."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from penstock import AsyncStore
from penstock.servers.access import make_user
from penstock.servers.resp import backend
from penstock.servers.resp.commands import keyspace
from penstock.servers.resp.commands.keyspace import Glob
from penstock.servers.resp.server import Server
from tests.servers.hashes import older_hash
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio


async def scanned(client: Client, *words: Any) -> list[bytes]:
    """All keys, as a client goes through them."""
    cursor, found = b"0", []
    while True:
        cursor, keys = await client("SCAN", cursor, *words)
        found += keys
        if cursor == b"0":
            return found


async def test_a_queue_of_any_door_is_a_key_while_it_has_messages_or_groups(client: Client, store: AsyncStore) -> None:
    await store.queue("declared", max_retries=3)
    assert await client("EXISTS", "declared") == 0
    await (await store.queue("work")).send({"n": 1})
    await client("QADD", "events", 60, "x")
    await client("XGROUP", "CREATE", "empty", "g", "$", "MKSTREAM")
    assert sorted(await client("KEYS", "*")) == [b"empty", b"events", b"work"]
    assert await client("TYPE", "work") == b"stream"
    assert await client("DBSIZE") == 3


async def test_a_deleted_queue_is_used_as_a_new_one(client: Client, store: AsyncStore) -> None:
    work = await store.queue("work", max_retries=3)
    await work.send({"n": 1})
    await work.receive()
    assert await client("DEL", "work", "missing") == 1
    assert await client("EXISTS", "work") == 0
    assert await client("DEL", "work") == 0
    await work.send({"n": 2})
    assert [delivery.json() for delivery in await work.receive()] == [{"n": 2}]
    assert (await work.policy()).max_retries == 3


async def test_a_client_that_waits_hears_that_the_key_was_deleted(client: Client, talk: Talk, server: Server) -> None:
    await client("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
    waiting = await talk()
    waiting.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", 0, "STREAMS", "s", ">")
    while server.blocked_clients == 0:
        await client("PING")
    await client("DEL", "s")
    assert str(await waiting.reply()).startswith("NOGROUP")


async def test_scan_meets_every_key_that_is_there_all_the_while(client: Client) -> None:
    names = [f"s{number}" for number in range(25)]
    for name in names:
        await client("XADD", name, "*", "a", "1")
    assert sorted(await scanned(client)) == sorted(name.encode() for name in names)
    assert sorted(await scanned(client, "MATCH", "s1*", "COUNT", 3)) == sorted(
        name.encode() for name in names if name.startswith("s1")
    )
    assert await scanned(client, "TYPE", "list") == []
    cursor, first = await client("SCAN", 0, "COUNT", 5)
    await client("DEL", *first[:3])
    await client("XADD", "new", "*", "a", "1")
    rest: list[bytes] = []
    while cursor != b"0":
        cursor, keys = await client("SCAN", cursor, "COUNT", 5)
        rest += keys
    assert {*first, *rest} - {b"new"} == {name.encode() for name in names}


async def test_keys_that_share_a_place_of_scan_come_together(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyspace, "CURSOR_BITS", 1)
    for number in range(9):
        await client("XADD", f"s{number}", "*", "a", "1")
    found = await scanned(client, "COUNT", 2)
    assert len(found) == len(set(found)) == 9


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        (b"*", {"hello", "hallo", "h*llo", "heeello"}),
        (b"h?llo", {"hello", "hallo", "h*llo"}),
        (b"h*llo", {"hello", "hallo", "h*llo", "heeello"}),
        (b"h[ae]llo", {"hello", "hallo"}),
        (b"h[^e]llo", {"hallo", "h*llo"}),
        (b"h[a-b]llo", {"hallo"}),
        (b"h[b-a]llo", {"hallo"}),
        (b"h\\*llo", {"h*llo"}),
        (b"h[\\*]llo", {"h*llo"}),
        (b"h[ae", set()),
        (b"", set()),
    ],
)
def test_patterns_are_those_of_redis(pattern: bytes, names: set[str]) -> None:
    assert {name for name in ("hello", "hallo", "h*llo", "heeello") if Glob(pattern).matches(name)} == names


async def test_what_a_queue_cannot_do_is_refused(client: Client) -> None:
    await client("XADD", "s", "*", "a", "1")
    assert "cannot expire" in await client.error("EXPIRE", "s", 10)
    assert "cannot expire" in await client.error("PEXPIRE", "s", 10, "NX")
    assert "cannot expire" in await client.error("PEXPIREAT", "s", 10**15)
    assert "cannot be renamed" in await client.error("RENAME", "s", "t")
    assert "not tracked" in await client.error("OBJECT", "IDLETIME", "s")
    assert "do not run" in await client.error("SCRIPT", "LOAD", "return 1")
    assert (await client.error("EVALSHA", "0" * 40, 0)).startswith("NOSCRIPT")
    assert "only locks" in await client.error("SET", "t", "value")
    assert await client("XLEN", "s") == 1


async def test_only_who_manages_removes_and_nobody_sees_the_keys_of_others(
    server: Server, client: Client, talk: Talk
) -> None:
    await client("XADD", "orders", "*", "a", "1")
    await client("XADD", "secret", "*", "a", "1")
    server.users.replace(
        [
            make_user("clerk", older_hash("pw"), ["orders"], ["send", "receive", "look"]),
            make_user("keeper", older_hash("pw"), ["orders"], ["look", "manage"]),
            make_user("admin", older_hash("pw"), ["*"], ["look", "manage"]),
        ]
    )
    clerk, keeper, admin = [await talk() for _ in range(3)]
    for name, user in (("clerk", clerk), ("keeper", keeper), ("admin", admin)):
        assert await user("AUTH", name, "pw") == b"OK"
    assert await clerk("KEYS", "*") == [b"orders"]
    assert await scanned(clerk) == [b"orders"]
    for words in (("DEL", "orders"), ("UNLINK", "orders"), ("EXPIRE", "orders", 0), ("RENAME", "orders", "o")):
        assert (await clerk.error(*words)).startswith("NOPERM")
    assert (await clerk.error("FLUSHDB")).startswith("NOPERM")
    assert (await keeper.error("FLUSHDB")).startswith("NOPERM")
    assert (await keeper.error("DEL", "orders", "secret")).startswith("NOPERM")
    assert (await keeper.error("EXISTS", "secret")).startswith("NOPERM")
    assert await keeper("DEL", "orders") == 1
    assert await admin("KEYS", "*") == [b"secret"]
    assert await admin("FLUSHDB", "SYNC") == b"OK"
    assert await admin("DBSIZE") == 0


async def test_a_stream_that_was_deleted_elsewhere_is_made_as_a_stream_again(
    client: Client, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backend, "KNOWN_SECONDS", 0.01)
    await client("XADD", "events", "*", "a", "1")
    queue = await store.queue("events")
    await queue.delete()
    await anyio.sleep(0.02)
    await client("XADD", "events", "*", "a", "2")
    assert (await (await store.queue("events")).policy()).primary_group is None
