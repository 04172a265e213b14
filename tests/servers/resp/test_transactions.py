"""MULTI: what is queued is checked at once, and takes no more room than it may."""

from __future__ import annotations

import pytest

from penstock.settings import RespSettings
from tests.servers.resp.talking import Client

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
