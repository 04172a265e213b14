"""Messages: what a caller hands in (`Outgoing`), what an engine stores (`Draft`), and what can be read back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import repeat
from typing import Any

import msgspec

from penstock.domain.errors import InvalidInput, PayloadTooLarge
from penstock.domain.identity import check_id
from penstock.domain.names import check_name, shown
from penstock.domain.times import check_integer, check_seconds, from_time

JSON = "application/json"
BYTES = "application/octet-stream"
SYSTEM = "system"
MAX_PRIORITY = 1_000_000
MAX_HEADERS_BYTES = 64 * 1024


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send, with its own options. `None` means what the queue's policy says.

    The payload is bytes, or any JSON value, which is encoded and marked `application/json`.
    """

    payload: Any
    priority: int = 0
    delay_seconds: float | None = None
    ttl_seconds: float | None = None
    deadline_at: datetime | None = None
    address: str | None = None
    key: str | None = None
    headers: Mapping[str, str] | None = None
    id: str | None = None
    created_by: str = SYSTEM
    content_type: str | None = None


class Options(msgspec.Struct, frozen=True):
    """Everything about a message but its payload, checked. Most messages share the one `PLAIN`."""

    priority: int = 0
    delay_seconds: float | None = None
    ttl_seconds: float | None = None
    deadline_at: int | None = None
    address: str | None = None
    key: str | None = None
    headers: str | None = None
    id: str | None = None
    created_by: str | None = None
    batch: str | None = None
    # The batch is the first one of that name after this number; without it, the newest.
    batch_after: int | None = None


PLAIN = Options()


# A checked message on its way into an engine: payload, content type, options. A plain tuple, because a send of
# thousands must not build thousands of objects. Only its size is left for the engine to check, which knows the policy.
Draft = tuple[bytes, str | None, Options]


def draft(item: object, batch: str | None = None, after: int | None = None) -> Draft:
    """Check every field of an outgoing message, or of a bare payload; nothing reaches an engine unchecked."""
    if not isinstance(item, Outgoing):
        options = PLAIN if batch is None else Options(batch=check_name("batch", batch), batch_after=after)
        return (*encode(item, None), options)
    return (*encode(item.payload, item.content_type), _options(item, batch, after))


def drafts(items: Iterable[object], batch: str | None = None, after: int | None = None) -> list[Draft]:
    """Many at once; a list of nothing but bytes is the hot path of bulk sends."""
    several: list[Any] = items if isinstance(items, list) else _several(items)
    if batch is None and set(map(type, several)) == {bytes}:
        return list(zip(several, repeat(None), repeat(PLAIN), strict=False))
    return [draft(item, batch, after) for item in several]


def _several(items: Iterable[object]) -> list[object]:
    """A payload is often iterable itself: taken for a list it would be sent in crumbs."""
    if isinstance(items, str | bytes | bytearray | memoryview | Mapping) or not isinstance(items, Iterable):
        raise InvalidInput(f"send_many takes a list of messages, not {type(items).__name__}: {shown(items)}")
    return list(items)


def encode(payload: object, content_type: str | None) -> tuple[bytes, str | None]:
    """Payload bytes and their content type; bytes without a type need none stored."""
    if content_type is not None:
        check_name("content_type", content_type)
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), None if content_type == BYTES else content_type
    try:
        encoded = _encode_json(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"payload is neither bytes nor a JSON value: {error}") from None
    # The encoder writes null for a number that JSON does not have; a message must not change in silence.
    if b"null" in encoded and _has_odd_number(payload):
        raise InvalidInput("payload is not a JSON value: JSON has no NaN and no infinity")
    return encoded, content_type or JSON


def _has_odd_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(_has_odd_number(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_has_odd_number(item) for item in value)


def decode_json(payload: bytes) -> Any:
    try:
        return _decode_json(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"payload {shown(payload)} is not JSON: {error}") from None


def check_size(payload: bytes, max_payload_bytes: int) -> None:
    if len(payload) > max_payload_bytes:
        raise PayloadTooLarge(
            f"payload has {len(payload)} bytes: this queue takes at most {max_payload_bytes} (max_payload_bytes)"
        )


def _options(outgoing: Outgoing, batch: str | None, after: int | None) -> Options:
    delay, ttl, deadline = outgoing.delay_seconds, outgoing.ttl_seconds, outgoing.deadline_at
    return Options(
        priority=check_integer("priority", outgoing.priority, 0, MAX_PRIORITY),
        delay_seconds=None if delay is None else max(0, check_seconds("delay_seconds", delay, minimum=-1e18)),
        ttl_seconds=None if ttl is None else check_seconds("ttl_seconds", ttl, above=True),
        deadline_at=None if deadline is None else from_time("deadline_at", deadline),
        address=None if outgoing.address is None else check_name("address", outgoing.address),
        key=None if outgoing.key is None else check_name("key", outgoing.key),
        headers=_encode_headers(outgoing.headers),
        id=None if outgoing.id is None else check_id(outgoing.id),
        created_by=None if outgoing.created_by == SYSTEM else check_name("created_by", outgoing.created_by),
        batch=None if batch is None else check_name("batch", batch),
        batch_after=after,
    )


def _encode_headers(headers: object) -> str | None:
    if headers is None:
        return None
    if not isinstance(headers, Mapping):
        raise InvalidInput(f"headers must map strings to strings, not {type(headers).__name__}: {shown(headers)}")
    for name, value in headers.items():
        if not isinstance(name, str) or not isinstance(value, str):
            raise InvalidInput(f"headers must map strings to strings, not {shown(name)} to {shown(value)}")
    try:
        encoded = _encode_json(dict(headers))
    except UnicodeEncodeError as error:
        raise InvalidInput(f"headers {shown(headers)} are not valid UTF-8: {error}") from None
    if len(encoded) > MAX_HEADERS_BYTES:
        raise InvalidInput(f"headers have {len(encoded)} bytes: at most {MAX_HEADERS_BYTES} are allowed")
    return encoded.decode() if headers else None


def decode_headers(headers: str | None) -> dict[str, str]:
    return {} if headers is None else _decode_headers(headers)


_encode_json = msgspec.json.Encoder().encode
_decode_json = msgspec.json.Decoder().decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class Message(msgspec.Struct, frozen=True):
    """A message as it can be read from the log. `position` is None while it is held."""

    id: str
    queue: str
    payload: bytes
    content_type: str
    headers: dict[str, str]
    priority: int
    position: int | None
    created_at: datetime
    created_by: str
    available_at: datetime
    expires_at: datetime | None
    deadline_at: datetime | None
    address: str | None
    key: str | None
    batch: str | None

    def json(self) -> Any:
        return decode_json(self.payload)
