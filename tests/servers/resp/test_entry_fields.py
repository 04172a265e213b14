"""Fields of entries: kept as JSON where that is readable, and as they are where JSON would need much more room."""

from __future__ import annotations

import pytest

from penstock.servers.resp.commands.entries import FIELDS_BINARY, FIELDS_JSON, pack, unpack
from tests.servers.resp.client import Client

pytestmark = pytest.mark.anyio
MILLION = 1_000_000


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (b"text", FIELDS_JSON),
        (b'{"small": "json"}', FIELDS_JSON),
        (b"a" * MILLION, FIELDS_JSON),
        (b'"' * MILLION, FIELDS_BINARY),
        (b"\x01" * MILLION, FIELDS_BINARY),
        (b"\xff", FIELDS_BINARY),
    ],
    ids=["text", "json", "large", "quotes", "control", "bytes"],
)
def test_fields_come_back_as_they_were(value: bytes, kind: str) -> None:
    payload, content_type = pack([b"f", value])
    assert content_type == kind
    assert unpack(payload, content_type) == [b"f", value]
    assert len(payload) < len(value) + 64 * 1024


async def test_a_value_is_not_refused_for_what_json_would_make_of_it(client: Client) -> None:
    value = b"\x01" * (4 * MILLION)
    entry = await client("XADD", "s", "*", "f", value)
    assert await client("XRANGE", "s", "-", "+") == [[entry, [b"f", value]]]
