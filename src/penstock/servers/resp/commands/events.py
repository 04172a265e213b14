"""Ids of events. Penstock's are UUIDs; the older commands let the client choose any text, which becomes a UUID that
follows from it, while the text itself travels as a header."""

from __future__ import annotations

import re
import uuid

from penstock.domain.message import decode_headers
from penstock.engines.contract import HEADERS, Receipt, Row

HEADER = "event-id"
# Made once for this purpose; it only has to stay the same.
NAMESPACE = uuid.UUID("6a1f6c1e-5d0b-4f2e-9a57-3c6b1b0f2d44")
MAX_BYTES = 255
UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def event_id(data: bytes) -> str | None:
    """The message's id; None for what can be no id at all."""
    if UUID(data):
        return data.decode()
    if not data or len(data) > MAX_BYTES:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return chosen_id(text)


def event_key(data: bytes) -> bytes:
    """The message's id in the form in which it is looked up; nothing for what can be no id at all."""
    return data if UUID(data) else (event_id(data) or "").encode()


def chosen_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(NAMESPACE, text))


def told_id(row: Row, receipt: Receipt) -> bytes:
    """What the client calls it."""
    if row[HEADERS] is not None:
        chosen = decode_headers(row[HEADERS]).get(HEADER)
        if chosen is not None:
            return chosen.encode()
    return receipt.id_of(row).encode()
