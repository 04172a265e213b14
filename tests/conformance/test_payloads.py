"""Payloads: any bytes up to the limit, and any JSON value."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pydantic
import pytest

from penstock import InvalidInput, PayloadTooLarge, Queue, Store
from tests.conformance.assertions import assert_books_balance, take
from tests.conformance.clock import Clock

MEBIBYTE = 1 << 20

RAW = {
    "empty": b"",
    "nul": b"\x00",
    "nul inside": b"a\x00b\x00",
    "every byte": bytes(range(256)),
    "not UTF-8": b"\xff\xfe\xc3\x28",
    "looks like JSON": b'{"a": 1}',
    "newlines": b"\r\n\r\n",
    "a page and a byte": b"x" * 4_097,
}
JSON: dict[str, Any] = {
    "object": {"order": 1, "lines": [{"sku": "a"}, None, True]},
    "empty object": {},
    "list": [1, 2.5, "three"],
    "text": "plain",
    "empty text": "",
    "text with nul": "a\x00b",
    "umlauts and emoji": "Bücher 📦",
    "number": 42,
    "negative": -(2**63),
    "large": 2**64 - 1,
    "larger than a machine word": 2**70,
    "float": 0.1,
    "true": True,
    "false": False,
    "null": None,
    "nested": [[[[[["deep"]]]]]],
}


@pytest.mark.parametrize("payload", RAW.values(), ids=list(RAW))
def test_bytes_come_back_as_they_were(queue: Queue, payload: bytes) -> None:
    message_id = queue.send(payload)
    assert queue.find(message_id).payload == payload
    delivery = take(queue)
    assert delivery.payload == payload
    assert isinstance(delivery.payload, bytes)
    assert delivery.content_type == "application/octet-stream"
    delivery.reject("no")
    assert queue.dead_letters()[0].payload == payload
    queue.redrive()
    assert take(queue).payload == payload


@pytest.mark.parametrize("payload", RAW.values(), ids=list(RAW))
def test_held_bytes_come_back_as_they_were(queue: Queue, clock: Clock, payload: bytes) -> None:
    message_id = queue.send(payload, delay_seconds=13)
    assert queue.find(message_id).payload == payload
    clock.advance(seconds=14)
    assert take(queue).payload == payload


@pytest.mark.parametrize("payload", JSON.values(), ids=list(JSON))
def test_json_values_come_back_as_they_were(queue: Queue, payload: Any) -> None:
    queue.send(payload)
    delivery = take(queue)
    assert delivery.json() == payload
    assert type(delivery.json()) is type(payload)
    assert delivery.content_type == "application/json"


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_other_kinds_of_bytes_are_bytes(queue: Queue, kind: Any) -> None:
    queue.send(kind(b"\x00raw"))
    assert take(queue).payload == b"\x00raw"


def test_a_content_type_is_kept_with_bytes_and_with_json(queue: Queue) -> None:
    queue.send(b"%PDF", content_type="application/pdf")
    queue.send({"a": 1}, content_type="application/vnd.shop+json")
    first, second = queue.receive(limit=2)
    assert (first.content_type, second.content_type) == ("application/pdf", "application/vnd.shop+json")
    assert second.json() == {"a": 1}


def test_bytes_that_are_json_can_be_read_as_json(queue: Queue) -> None:
    queue.send(b'{"a": 1}')
    assert take(queue).json() == {"a": 1}


def test_bytes_that_are_not_json_say_so(queue: Queue) -> None:
    queue.send(b"\xff not json")
    with pytest.raises(InvalidInput, match="not JSON"):
        take(queue).json()


def test_sixteen_mebibytes_are_taken_and_not_a_byte_more(queue: Queue) -> None:
    payload = bytes(range(256)) * (16 * MEBIBYTE // 256)
    message_id = queue.send(payload)
    assert take(queue).payload == payload
    assert queue.find(message_id).payload == payload
    with pytest.raises(PayloadTooLarge, match=str(16 * MEBIBYTE + 1)):
        queue.send(payload + b"x")
    assert_books_balance(queue, sent=1)


def test_the_limit_of_the_queue_counts_encoded_bytes(store: Store) -> None:
    queue = store.queue("small", max_payload_bytes=8)
    queue.send(b"12345678")
    queue.send("123456")
    with pytest.raises(PayloadTooLarge, match="max_payload_bytes"):
        queue.send(b"123456789")
    with pytest.raises(PayloadTooLarge):
        queue.send("1234567")
    with pytest.raises(PayloadTooLarge):
        queue.send("üüüü")
    assert_books_balance(queue, sent=2)


@pytest.mark.parametrize("options", [{"delay_seconds": 13}, {}])
def test_the_limit_holds_for_held_messages_too(store: Store, options: dict[str, Any]) -> None:
    queue = store.queue("small", max_payload_bytes=8)
    with pytest.raises(PayloadTooLarge):
        queue.send(b"123456789", **options)


def test_the_limit_holds_for_the_end_message_of_a_batch(store: Store) -> None:
    queue = store.queue("small", max_payload_bytes=8)
    with pytest.raises(PayloadTooLarge):
        queue.batch("nightly").set_end(b"123456789")
    with pytest.raises(PayloadTooLarge):
        queue.batch("nightly").set_abort(b"123456789")


def loop() -> list[Any]:
    inner: list[Any] = []
    inner.append(inner)
    return inner


@pytest.mark.parametrize(
    "payload",
    [object(), {1, 2, object()}, {"a": object()}, print, "\ud800", {"\ud800": 1}, loop()],
    ids=["object", "set", "nested object", "function", "lone surrogate", "surrogate key", "loop"],
)
def test_a_payload_that_is_neither_bytes_nor_json_is_refused(queue: Queue, payload: Any) -> None:
    with pytest.raises(InvalidInput, match="payload"):
        queue.send(payload)
    assert queue.peek() == []


@pytest.mark.parametrize("content_type", ["", "a\nb", "x" * 256, 7])
def test_a_bad_content_type_is_refused(queue: Queue, content_type: Any) -> None:
    with pytest.raises(InvalidInput, match="content_type"):
        queue.send(b"x", content_type=content_type)
    assert queue.peek() == []


class Line(pydantic.BaseModel):
    sku: str
    price: float | None = None


class Order(pydantic.BaseModel):
    """A model with aliases, nested models, times and a computed field."""

    model_config = pydantic.ConfigDict(extra="forbid")

    number: int = pydantic.Field(alias="orderNumber")
    lines: list[Line]
    at: datetime

    @pydantic.computed_field  # type: ignore[prop-decorator]  # as pydantic's own documentation has it
    @property
    def total(self) -> int:
        return len(self.lines)


@dataclass
class Measured:
    degrees: float


ORDER = Order(orderNumber=7, lines=[Line(sku="a")], at=datetime(2026, 1, 31, 12, tzinfo=UTC))


def test_a_pydantic_model_comes_back_as_the_same_model(queue: Queue) -> None:
    queue.send(ORDER)
    delivery = take(queue)
    assert delivery.content_type == "application/json"
    assert Order.model_validate_json(delivery.payload) == ORDER
    assert delivery.json()["orderNumber"] == 7


def test_pydantic_models_may_be_inside_of_other_values(queue: Queue) -> None:
    queue.send_many([{"order": ORDER, "lines": [Line(sku="b", price=1.5)]}])
    found = take(queue).json()
    assert found["order"]["lines"] == [{"sku": "a", "price": None}]
    assert found["lines"] == [{"sku": "b", "price": 1.5}]


@pytest.mark.parametrize(
    "payload",
    [Line(sku="a", price=float("nan")), [{"line": Line(sku="a", price=float("inf"))}], Measured(float("nan"))],
    ids=["model", "inside", "dataclass"],
)
def test_a_number_that_json_lacks_is_refused_wherever_it_is(queue: Queue, payload: Any) -> None:
    with pytest.raises(InvalidInput, match="NaN"):
        queue.send(payload)
    assert queue.peek() == []
