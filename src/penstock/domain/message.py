"""Messages: as callers send them (`Outgoing`), as engines take them (`Draft`), and as they are read (`Message`)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from itertools import repeat
from typing import Any, TypedDict

import msgspec

from penstock.domain.errors import InvalidInput, PayloadTooLarge
from penstock.domain.identity import check_id
from penstock.domain.limits import MAX_HEADERS_BYTES, MAX_PRIORITY
from penstock.domain.validation import check_integer, check_list, check_name, check_seconds, from_time, shown

JSON = "application/json"
BYTES = "application/octet-stream"
SYSTEM = "system"
# The header of an end or abort message that names its batch.
BATCH_HEADER = "penstock-batch"


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message to send, with its own options; `None` means the default of the queue's policy.

    The payload is bytes, or any JSON value, which is encoded and marked `application/json`; dataclasses, msgspec
    structs and pydantic models are JSON values too.
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


class SendOptions(TypedDict, total=False):
    """The fields of `Outgoing` except the payload, as keywords."""

    priority: int
    delay_seconds: float | None
    ttl_seconds: float | None
    deadline_at: datetime | None
    address: str | None
    key: str | None
    headers: Mapping[str, str] | None
    id: str | None
    created_by: str
    content_type: str | None


class Options(msgspec.Struct, frozen=True):
    """The validated options of a message. Most messages share the instance `PLAIN`."""

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
    # The queue that the batch belongs to, where that is not the queue of the message.
    batch_queue: str | None = None


# A message is plain when its options are this object: `draft` uses it wherever nothing was chosen.
PLAIN = Options()


# A validated message as engines take it: payload, content type, options. A tuple, so that a send of thousands does not
# build thousands of objects. Only the payload size is left to check, for which the engine knows the policy.
Draft = tuple[bytes, str | None, Options]


def draft(item: object, batch: str | None = None, after: int | None = None, batch_queue: str | None = None) -> Draft:
    """Validate an outgoing message or a bare payload."""
    if batch is None and batch_queue is not None:
        raise InvalidInput(f"batch_queue {shown(batch_queue)} needs the name of a batch of that queue (batch)")
    if not isinstance(item, Outgoing):
        options = PLAIN if batch is None else _options(Outgoing(payload=None), batch, after, batch_queue)
        return (*encode(item, None), options)
    return (*encode(item.payload, item.content_type), _options(item, batch, after, batch_queue))


def drafts(
    items: Iterable[object], batch: str | None = None, after: int | None = None, batch_queue: str | None = None
) -> list[Draft]:
    """Validate many; a list of bytes only is the hot path of bulk sends."""
    several = check_list("send_many takes a list of messages", items)
    if batch is None and set(map(type, several)) == {bytes}:
        return list(zip(several, repeat(None), repeat(PLAIN), strict=False))
    return [draft(item, batch, after, batch_queue) for item in several]


def encode(payload: object, content_type: str | None) -> tuple[bytes, str | None]:
    """The payload as bytes, and the content type to store: none for plain bytes."""
    if content_type is not None:
        check_name("content_type", content_type)
    if isinstance(payload, bytes | bytearray | memoryview):
        return bytes(payload), None if content_type == BYTES else content_type
    try:
        encoded = _encode_json(payload)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidInput(f"payload is neither bytes nor a JSON value: {error}") from None
    # The encoder writes null for NaN and infinity; a payload must not change silently.
    if b"null" in encoded and _has_odd_number(msgspec.to_builtins(payload, enc_hook=_model_fields)):
        raise InvalidInput("payload is not a JSON value: JSON has no NaN and no infinity")
    return encoded, content_type or JSON


def _has_odd_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, Mapping):
        return any(_has_odd_number(item) for item in value.values())
    return isinstance(value, list | tuple) and any(_has_odd_number(item) for item in value)


def _model_json(value: Any) -> msgspec.Raw:
    """Encode a pydantic model so that it round-trips: by alias, without computed fields."""
    if not hasattr(value, "model_dump_json"):
        raise TypeError(f"a value of type {type(value).__name__} has no JSON form")
    return msgspec.Raw(value.model_dump_json(by_alias=True, round_trip=True).encode())


def _model_fields(value: Any) -> dict[str, Any]:
    fields: dict[str, Any] = value.model_dump()
    return fields


def decode_json(payload: bytes) -> Any:
    try:
        return _decode_json(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidInput(f"payload {shown(payload)} is not JSON: {error}") from None


def check_size(payload: bytes, max_payload_bytes: int) -> None:
    if len(payload) > max_payload_bytes:
        raise payload_too_large(len(payload), max_payload_bytes)


def payload_too_large(size: int, max_payload_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(
        f"payload has {size} bytes: this queue takes at most {max_payload_bytes} (max_payload_bytes)"
    )


def _options(outgoing: Outgoing, batch: str | None, after: int | None, batch_queue: str | None) -> Options:
    delay, ttl, deadline = outgoing.delay_seconds, outgoing.ttl_seconds, outgoing.deadline_at
    options = Options(
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
        batch_queue=None if batch_queue is None else check_name("batch_queue", batch_queue),
    )
    return PLAIN if options == PLAIN else options


def can_refuse(drafts: Iterable[Draft]) -> bool:
    """Whether the state of the queue can refuse one of the messages, or answer for it: such sends are not merged with
    others."""
    return any(
        [
            options is not PLAIN and (options.id or options.address or options.batch) is not None
            for _, _, options in drafts
        ]
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


def named_after(batch: str, message: Draft) -> Draft:
    """Add the name of the batch to the headers of its end or abort message."""
    payload, content_type, options = message
    headers = {**decode_headers(options.headers), BATCH_HEADER: batch}
    return payload, content_type, msgspec.structs.replace(options, headers=_encode_json(headers).decode())


def decode_headers(headers: str | None) -> dict[str, str]:
    return {} if headers is None else _decode_headers(headers)


_encode_json = msgspec.json.Encoder(enc_hook=_model_json).encode
_decode_json = msgspec.json.Decoder().decode
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


class Message(msgspec.Struct, frozen=True):
    """A message as read from the log. `position` is None while it is held."""

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
