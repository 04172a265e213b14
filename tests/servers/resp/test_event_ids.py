"""Ids that clients of the older commands choose: any text of 1 to 255 bytes, which comes back as it was given."""

from __future__ import annotations

import pytest

from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio

CHOSEN = [
    "7",
    "x" * 255,
    "ü" * 127 + "x",
    " two words\n",
    "nul \x00 inside",
    "0C0FFEE0-0000-4000-8000-00000000ABCD",
    "0c0ffee0-0000-4000-8000-00000000abcd",
]


@pytest.mark.parametrize("push", ["QLPUSH", "QRPUSH"])
@pytest.mark.parametrize("event", CHOSEN, ids=lambda event: ascii(event[:10]))
async def test_a_chosen_id_comes_back_as_it_was_given(client: Client, push: str, event: str) -> None:
    assert await client(push, "q", event, "contents") == b"OK"
    assert "is in the queue already" in await client.error(push, "q", event, "again")
    assert await client("QRPEEK", "q") == [event.encode(), b"contents"]
    assert await client("QLPEEK", "q") == [event.encode(), b"contents"]
    assert await client("QRPOP", "q") == [event.encode(), b"contents"]
    assert await client("QACK", "q", event) == 1


@pytest.mark.parametrize("push", ["QLPUSH", "QRPUSH"])
@pytest.mark.parametrize("count", [256, 257, 5000])
async def test_a_longer_id_is_refused_with_the_limit(client: Client, push: str, count: int) -> None:
    """QACK takes no longer ones, so such an event could not be acknowledged."""
    for words in ([], ["NOBLOCK"]):
        error = await client.error(push, "q", "x" * count, "contents", *words)
        assert f"has {count} bytes: an event's id has 1 to 255 bytes of UTF-8" in error
    assert "has 256 bytes" in await client.error(push, "q", "ü" * 128, "contents")
    assert await client("QRPOP", "q") is None


async def test_an_empty_id_is_refused(client: Client) -> None:
    assert "has 0 bytes: an event's id has 1 to 255 bytes" in await client.error("QLPUSH", "q", "", "contents")
    assert "is not valid UTF-8" in await client.error("QLPUSH", "q", b"\xff", "contents")
