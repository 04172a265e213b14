"""Payloads in JSON documents, for HTTP and the command line: a JSON value as `payload`, any other content in base64 as
`payload_base64`."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.message import JSON, Message, decode_json
from penstock.domain.recurrence import Schedule
from penstock.domain.results import DeadLetter


def payload_fields(payload: bytes, content_type: str) -> dict[str, msgspec.Raw | str]:
    if is_json(payload, content_type):
        # Raw keeps the bytes as they were sent, such as the digits of numbers.
        return {"content_type": content_type, "payload": msgspec.Raw(payload)}
    return {"content_type": content_type, "payload_base64": base64.b64encode(payload).decode("ascii")}


def with_payload(value: Message | DeadLetter | Schedule) -> dict[str, Any]:
    fields = msgspec.structs.asdict(value)
    payload, content_type = fields.pop("payload"), fields.pop("content_type")
    return {**fields, **payload_fields(payload, content_type)}


def is_json(payload: bytes, content_type: str) -> bool:
    """Check the payload itself: the sender may have given a wrong content type."""
    if content_type != JSON:
        return False
    try:
        decode_json(payload)
    except InvalidInput:
        return False
    return True
