"""Batches by name: a send begins the first one, and none after one that has ended."""

from __future__ import annotations

import pytest

from tests.servers.resp.talking import Client

pytestmark = pytest.mark.anyio


async def test_a_message_for_a_batch_that_has_ended_is_refused_until_another_is_open(client: Client) -> None:
    assert await client("QSEND", "q", "1", "BATCH", "nightly")
    await client("QBATCH", "CANCEL", "q", "nightly")
    late = await client.error("QSEND", "q", "2", "BATCH", "nightly")
    assert late.startswith("BATCHCLOSED ")
    assert "QBATCH OPEN" in late
    assert b"open" in await client("QBATCH", "OPEN", "q", "nightly")
    assert await client("QSEND", "q", "3", "BATCH", "nightly")
    assert b"running" in await client("QBATCH", "START", "q", "nightly")
    assert len(await client("QBATCH", "LIST", "q")) == 2
