"""A payload as part of a JSON document, the same for all doors that answer in JSON.

It is the JSON value it is (`payload`); any other content is given as base64 (`payload_base64`).
"""

from __future__ import annotations

import base64

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.message import JSON, decode_json


def payload_fields(payload: bytes, content_type: str) -> dict[str, msgspec.Raw | str]:
    if is_json(payload, content_type):
        # Raw: digits and spelling stay exactly as they were sent.
        return {"content_type": content_type, "payload": msgspec.Raw(payload)}
    return {"content_type": content_type, "payload_base64": base64.b64encode(payload).decode("ascii")}


def is_json(payload: bytes, content_type: str) -> bool:
    """The content type is only what the sender claimed; a wrong claim must not break the document."""
    if content_type != JSON:
        return False
    try:
        decode_json(payload)
    except InvalidInput:
        return False
    return True
