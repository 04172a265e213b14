"""Locks of clients, as redis-py takes, extends and frees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import redis.asyncio
from redis.exceptions import LockNotOwnedError

from penstock.servers.access import make_user
from penstock.servers.resp import locks
from penstock.servers.resp.server import Server
from tests.servers.hashes import older_hash
from tests.servers.resp.client import Client, Talk

pytestmark = pytest.mark.anyio


@pytest.fixture
async def connection(server: Server) -> AsyncIterator[Any]:
    port = await server.listen("127.0.0.1", 0)
    async with redis.asyncio.Redis(port=port) as opened:
        yield opened


async def test_one_holds_a_lock_until_it_is_freed(connection: Any, client: Client) -> None:
    mine, other = connection.lock("once"), connection.lock("once", blocking=False)
    assert await mine.acquire()
    assert not await other.acquire()
    assert await mine.owned()
    assert await mine.locked()
    assert await client("TYPE", "once") == b"string"
    assert await client("TTL", "once") == -1
    await mine.release()
    assert await client("EXISTS", "once") == 0
    assert await other.acquire()


async def test_a_lock_ends_by_itself_and_is_extended(connection: Any, client: Client) -> None:
    lock = connection.lock("once", timeout=100)
    await lock.acquire()
    assert 98 < await client("TTL", "once") <= 100
    assert await lock.extend(50)
    assert 140 < await client("TTL", "once") <= 150
    assert await lock.extend(20, replace_ttl=True)
    assert 18 < await client("TTL", "once") <= 20
    assert await lock.reacquire()
    assert 98 < await client("TTL", "once") <= 100
    assert await client("EXPIRE", "once", 10, "GT") == 0
    assert await client("PEXPIRE", "once", 1) == 1
    while await client("EXISTS", "once"):
        await asyncio.sleep(0.001)
    assert await client("SET", "once", "other", "NX", "PX", 60_000) == b"OK"
    with pytest.raises(LockNotOwnedError):
        await lock.release()
    assert await client("GET", "once") == b"other"
    assert await client("PERSIST", "once") == 1
    assert await client("PERSIST", "once") == 0
    assert await client("DEL", "once") == 1


async def test_of_many_who_take_a_lock_at_once_one_has_it(talk: Talk) -> None:
    clients = [await talk() for _ in range(8)]
    for number, one in enumerate(clients):
        one.send("SET", "once", number, "NX", "EX", 60)
    assert sorted([(await one.reply()) or b"" for one in clients]) == [b""] * 7 + [b"OK"]


async def test_a_lock_in_a_pipeline_surrounds_what_it_guards(connection: Any) -> None:
    """As taskiq-redis takes over what other workers hold."""
    await connection.xgroup_create("s", "g", mkstream=True)
    pipeline = connection.pipeline()
    lock = pipeline.lock("autoclaim:g:s", timeout=None)
    await lock.acquire()
    await pipeline.xautoclaim("s", "g", "c", min_idle_time=0)
    await lock.release()
    taken, (_, claimed, _), freed = await pipeline.execute()
    assert (taken, claimed, freed) == (True, [], 1)
    assert await connection.exists("autoclaim:g:s") == 0


async def test_a_key_is_a_lock_or_a_queue(client: Client) -> None:
    await client("XADD", "s", "*", "a", "1")
    assert await client("SET", "s", "token", "NX") is None
    assert (await client.error("GET", "s")).startswith("WRONGTYPE")
    await client("SET", "l", "token", "NX")
    assert sorted(await client("KEYS", "*")) == [b"l", b"s"]
    assert await client("SCAN", 0, "TYPE", "string") == [b"0", [b"l"]]
    assert await client("FLUSHDB") == b"OK"
    assert await client("KEYS", "*") == []


async def test_locks_are_bounded_and_those_that_have_ended_go(
    client: Client, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "MAX_LOCKS", 3)
    for number in range(3):
        await client("SET", f"l{number}", "token", "NX", "PX", 1)
    while await client("DBSIZE"):
        await asyncio.sleep(0.001)
    for number in range(3):
        assert await client("SET", f"m{number}", "token", "NX") == b"OK"
    assert "3 locks" in await client.error("SET", "n", "token", "NX")
    assert set(server.store.engine.ledger(locks.KIND)) == {"m0", "m1", "m2"}


async def test_locks_need_a_right_for_their_name(server: Server, talk: Talk) -> None:
    server.users.replace([make_user("worker", older_hash("pw"), ["autoclaim:*"], ["receive"])])
    worker = await talk()
    await worker("AUTH", "worker", "pw")
    assert await worker("SET", "autoclaim:g:s", "token", "NX") == b"OK"
    assert (await worker.error("SET", "other", "token", "NX")).startswith("NOPERM")
    release = "c3f8721cbb97f72bc19e972846bd7aaf91901658"
    assert (await worker.error("EVALSHA", release, 1, "other", "token")).startswith("NOPERM")
    assert await worker("EVALSHA", release, 1, "autoclaim:g:s", "token") == 1


async def test_the_scripts_of_locks_are_known(client: Client) -> None:
    text = redis.asyncio.lock.Lock.LUA_RELEASE_SCRIPT
    digest = await client("SCRIPT", "LOAD", text)
    assert await client("SCRIPT", "EXISTS", digest, "0" * 40) == [1, 0]
    assert "takes 1 key" in await client.error("EVALSHA", digest, 0, "token")


async def test_times_and_tokens_are_bounded(client: Client) -> None:
    assert "1024 bytes" in await client.error("SET", "l", "x" * 1025, "NX")
    await client("SET", "l", "token", "NX", "EX", 60)
    assert "invalid expire time" in await client.error("EXPIRE", "l", 10**17)
    again, extend = "1cac51482acf5858da00f6d685d68f886cd6b6b2", "a4e8783852e6b949f9ef3a97212805108459a890"
    assert "invalid expire time" in await client.error("EVALSHA", again, 1, "l", "token", 10**17)
    assert "invalid expire time" in await client.error("EVALSHA", extend, 1, "l", "token", 10**17, 0)
    assert 58 < await client("TTL", "l") <= 60
    assert await client("EXPIRE", "l", -(10**17)) == 1
    assert await client("EXISTS", "l") == 0


@pytest.mark.parametrize("words", [("PX", 0, "NX"), ("NX", "PX", "x"), ("NX", "XX"), ("EX", 5)])
async def test_wrong_words_are_refused(client: Client, words: tuple[Any, ...]) -> None:
    assert (await client.error("SET", "l", "token", *words)).startswith("ERR")
