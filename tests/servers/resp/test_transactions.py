"""MULTI: what is queued is checked at once, and takes no more room than it may."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.servers.resp import session
from penstock.settings import RespSettings
from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("settings", [RespSettings(transaction_bytes=100_000)])
async def test_a_transaction_that_grows_too_large_is_refused_and_forgotten(client: Client) -> None:
    assert await client("MULTI") == b"OK"
    for _ in range(3):
        assert await client("XADD", "s", "*", "n", "x" * 30_000) == b"QUEUED"
    assert "100000 bytes (transaction_bytes)" in await client.error("XADD", "s", "*", "n", "x" * 30_000)
    for _ in range(100):
        # Nothing more is kept, however long it goes on.
        assert "transaction_bytes" in await client.error("XADD", "s", "*", "n", "x" * 30_000)
    assert (await client.error("EXEC")).startswith("EXECABORT")
    assert await client("XLEN", "s") == 0
    assert await client("MULTI") == b"OK"
    assert await client("XADD", "s", "*", "n", "1") == b"QUEUED"
    assert len(await client("EXEC")) == 1


@pytest.mark.parametrize("settings", [RespSettings(transaction_bytes=100_000)])
async def test_many_small_commands_are_counted_too(client: Client) -> None:
    await client("MULTI")
    for _ in range(1000):
        client.send("PING")
    replies = [await client.reply() for _ in range(1000)]
    assert replies[0] == b"QUEUED"
    assert "transaction_bytes" in str(replies[-1])


async def test_nothing_of_a_spoilt_transaction_is_done(client: Client) -> None:
    await client("MULTI")
    assert await client("XADD", "s", "*", "a", "1") == b"QUEUED"
    assert "wrong number of arguments for 'qget'" in await client.error("QGET", "s")
    assert "wrong number of arguments for 'qack'" in await client.error("QACK", "s")
    assert await client("XADD", "s", "*", "a", "2") == b"QUEUED"
    assert (await client.error("EXEC")).startswith("EXECABORT")
    assert await client("XLEN", "s") == 0


@pytest.mark.parametrize("settings", [RespSettings(background_sends=0)])
async def test_noblock_inside_a_transaction_is_part_of_it(client: Client) -> None:
    """It was sent beside the transaction, in the background, for which there is no room here."""
    assert "overloaded" in await client.error("QADD", "q", 60, "x", "NOBLOCK")
    await client("MULTI")
    assert await client("QADD", "q", 60, "x", "NOBLOCK") == b"QUEUED"
    assert await client("QLPUSH", "q", "own", "y", "NOBLOCK") == b"QUEUED"
    assert await client("QGET", "q", "g", "EX", 0) == b"QUEUED"
    added, pushed, got = await client("EXEC")
    assert (added, pushed) == (b"OK", b"OK")
    assert got[1] == b"x", "a command after it finds what it has sent"


# -- the size of replies ---------------------------------------------------------------------------------------------

MEBIBYTE = 1024 * 1024
# Each of these brings a payload, or nothing once EXEC has answered enough.
BRINGING = [
    ("XRANGE", "s", "-", "+"),
    ("XREVRANGE", "s", "+", "-"),
    ("XREAD", "STREAMS", "s", "0"),
    ("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">"),
    ("XAUTOCLAIM", "s", "g", "me", "0", "0"),
    ("XINFO", "STREAM", "s"),
    ("QGET", "s", "g"),
    ("QRECEIVE", "s"),
    ("QRPOP", "s"),
    ("QRPEEK", "s"),
    ("QLPEEK", "s"),
    ("QPEEK", "s"),
    ("QDEAD", "s"),
]


async def _filled_stream(client: Client) -> tuple[bytes, bytes]:
    """A stream with two entries of 3.5 MiB, the first of which is pending."""
    await client("XGROUP", "CREATE", "s", "g", "0", "MKSTREAM")
    first = await client("XADD", "s", "*", "n", "x" * (7 * MEBIBYTE // 2))
    second = await client("XADD", "s", "*", "n", "x" * (7 * MEBIBYTE // 2))
    assert await client("XREADGROUP", "GROUP", "g", "other", "COUNT", "1", "STREAMS", "s", ">")
    return first, second


async def _after_much(client: Client, *calls: tuple[object, ...]) -> list[Any]:
    """Replies to calls in a transaction that has answered with more than 16 MiB before."""
    await client("MULTI")
    for _ in range(5):
        await client("XRANGE", "s", "-", "+", "COUNT", "1")
    for words in calls:
        assert await client(*words) == b"QUEUED"
    replies = await client("EXEC")
    assert all(len(one) == 1 for one in replies[:5])
    return list(replies[5:])


async def test_commands_without_messages_run_after_large_replies(client: Client) -> None:
    first, _ = await _filled_stream(client)
    assert await client("SET", "lock", "token", "NX", "PX", "60000") == b"OK"
    replies = await _after_much(
        client,
        ("XLEN", "s"),
        ("EXISTS", "s"),
        ("TYPE", "s"),
        ("XPENDING", "s", "g"),
        ("XPENDING", "s", "g", "-", "+", "10"),
        ("GET", "lock"),
        ("XINFO", "GROUPS", "s"),
        ("KEYS", "*"),
        ("XAUTOCLAIM", "s", "g", "me", "0", "0", "JUSTID"),
        ("XCLAIM", "s", "g", "again", "0", first, "justid"),
        ("QSTATUS", "s"),
        ("XACK", "s", "g", first),
    )
    assert not [one for one in replies if isinstance(one, Exception)]
    assert replies[:3] == [2, 1, b"stream"]
    assert replies[5] == b"token"
    assert replies[8][1] == [first]
    assert replies[9] == [first]
    assert replies[-1] == 1
    assert (await client("XPENDING", "s", "g"))[0] == 0


async def test_commands_with_messages_take_nothing_after_large_replies(client: Client) -> None:
    first, second = await _filled_stream(client)
    replies = await _after_much(client, *BRINGING, ("XCLAIM", "s", "g", "me", "0", first))
    for words, reply in zip([*BRINGING, ("XCLAIM",)], replies, strict=True):
        assert f"{words[0]} was not run; nothing was received by it" in str(reply)
    assert [one[:2] for one in await client("XPENDING", "s", "g", "-", "+", "10")] == [[first, b"other"]]
    assert (await client("XREADGROUP", "GROUP", "g", "me", "STREAMS", "s", ">"))[0][1][0][0] == second


async def test_lists_without_messages_are_bounded_too(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a transaction answers waits in memory. The tests above reach the bound with payloads; PostgreSQL takes
    seconds to list as many names, so there are fewer here."""
    monkeypatch.setattr(session, "EXEC_BYTES", MEBIBYTE)
    for place in range(200):
        await client("XADD", "s" * 250 + str(place), "*", "n", "1")
    await client("MULTI")
    for _ in range(25):
        client.send("KEYS", "*")
        assert await client.reply() == b"QUEUED"
    await client("XADD", "s", "*", "n", "1")
    replies = await client("EXEC")
    refused = [one for one in replies if isinstance(one, Exception)]
    assert 0 < len(refused) < 10
    assert all("KEYS was not run; ask again after EXEC" in str(one) for one in refused)
    assert sum(len(key) for one in replies[:-1] if isinstance(one, list) for key in one) < MEBIBYTE + 200 * 256
    assert b"-" in replies[-1], "what changes the store is always run"
