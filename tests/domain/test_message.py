"""Validation and encoding of messages."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.domain.errors import InvalidInput, PayloadTooLarge
from penstock.domain.message import (
    BYTES,
    JSON,
    PLAIN,
    Outgoing,
    check_size,
    decode_headers,
    decode_json,
    draft,
    drafts,
    encode,
)
from penstock.domain.validation import from_time

texts = st.text(st.characters(exclude_categories=["Cs"]))
values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=20,
)


@given(payload=st.binary())
def test_bytes_are_taken_as_they_are_and_need_no_type(payload: bytes) -> None:
    assert encode(payload, None) == (payload, None)
    assert encode(payload, BYTES) == (payload, None)
    assert encode(payload, "image/png") == (payload, "image/png")
    assert encode(bytearray(payload), None) == encode(memoryview(payload), None) == (payload, None)


@given(value=values)
def test_a_json_value_comes_back_as_it_was(value: Any) -> None:
    payload, content_type = encode(value, None)
    assert content_type == JSON
    assert decode_json(payload) == value


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -math.inf, {"price": float("nan")}, [[float("inf")]]])
def test_a_number_that_json_does_not_have_is_refused_and_not_changed_to_null(value: Any) -> None:
    with pytest.raises(InvalidInput, match="payload"):
        encode(value, None)


@pytest.mark.parametrize(
    "value", [object(), {1j}, "\ud800", {"a": print}], ids=["object", "complex", "surrogate", "function"]
)
def test_a_value_that_is_neither_bytes_nor_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="neither bytes nor a JSON value"):
        encode(value, None)


@given(payload=st.binary())
def test_invalid_json_bytes_raise_invalid_input(payload: bytes) -> None:
    try:
        json.loads(payload)
    except ValueError:
        with pytest.raises(InvalidInput, match="not JSON") as caught:
            decode_json(payload)
        assert len(str(caught.value)) < 400


def test_deeply_nested_json_raises_invalid_input() -> None:
    with pytest.raises(InvalidInput):
        decode_json(b"[" * 1_000_000)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(InvalidInput):
        encode(deep, None)


def test_a_bare_payload_has_the_plain_options() -> None:
    assert draft(b"x") == (b"x", None, PLAIN)
    assert draft({"a": 1}) == (b'{"a":1}', JSON, PLAIN)
    assert draft(Outgoing(payload=b"x")) == (b"x", None, PLAIN)


def test_many_drafts_are_the_same_as_each_by_itself() -> None:
    items = [b"x", {"a": 1}, Outgoing(payload=b"y", priority=3)]
    assert drafts(items) == [draft(item) for item in items]
    assert drafts([b"x", b"y"]) == [draft(b"x"), draft(b"y")]
    assert drafts(iter(items)) == drafts(items)
    assert drafts([b"x"], "nightly")[0][2].batch == "nightly"


def test_every_option_reaches_the_draft_checked() -> None:
    deadline = datetime(2031, 5, 7, tzinfo=UTC)
    _, _, options = draft(
        Outgoing(
            payload=b"x",
            priority=5,
            delay_seconds=-3,
            ttl_seconds=7.5,
            deadline_at=deadline,
            address="desk",
            key="k",
            headers={"a": "b"},
            id="7D444840-9DC0-11D1-B245-5FFDCE74FAD2",
            created_by="shop",
        ),
        batch="nightly",
    )
    assert (options.priority, options.delay_seconds, options.ttl_seconds) == (5, 0, 7.5)
    assert options.deadline_at == from_time("deadline_at", deadline)
    assert (options.address, options.key, options.batch, options.created_by) == ("desk", "k", "nightly", "shop")
    assert options.id == "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    assert decode_headers(options.headers) == {"a": "b"}


@given(headers=st.dictionaries(texts, texts, max_size=10))
def test_headers_come_back_as_they_were(headers: dict[str, str]) -> None:
    _, _, options = draft(Outgoing(payload=b"x", headers=headers))
    assert decode_headers(options.headers) == headers


def test_a_size_is_checked_to_the_byte() -> None:
    check_size(b"12345678", 8)
    with pytest.raises(PayloadTooLarge, match=r"9 bytes.* at most 8"):
        check_size(b"123456789", 8)
