"""Batches by name: a send begins the first one, and none after one that has ended."""

from __future__ import annotations

import pytest

from tests.servers.resp.client import Client

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


async def test_a_batch_with_members_in_another_queue(client: Client) -> None:
    await client("QBATCH", "END", "reports", "nightly", "all done")
    assert await client("QSEND", "emails", "1", "BATCH", "nightly", "BATCHQUEUE", "reports")
    assert await client("QRECEIVE", "emails") == []
    assert b"running" in await client("QBATCH", "START", "reports", "nightly")
    ((id_at, message_id, *_),) = await client("QRECEIVE", "emails")
    assert id_at == b"id"
    assert await client("QREJECT", "emails", "default", message_id, "REASON", "no stamp") == b"rejected"
    ((_, _, *rest),) = await client("QRECEIVE", "reports")
    assert b"all done" in rest
    assert "batch_queue" in await client.error("QSEND", "emails", "2", "BATCHQUEUE", "reports")


@pytest.mark.parametrize("verb", ["QNAK", "QREJECT"])
async def test_the_code_of_an_error_reaches_whoever_waits(client: Client, verb: str) -> None:
    await client("QPOLICY", "q", "max_retries", "0")
    await client("QSEND", "q", "1", "ADDRESS", "report")
    ((_, message_id, *_),) = await client("QRECEIVE", "q")
    await client(verb, "q", "default", message_id, "REASON", "no paper", "CODE", "E42")
    assert "no paper (code E42)" in await client.error("QWAIT", "q", "report", "TIMEOUT", 1)
    await client("QSEND", "q", "2")
    ((_, message_id, *_),) = await client("QRECEIVE", "q")
    assert "code" in await client.error(verb, "q", "default", message_id, "CODE", "a\nb")
