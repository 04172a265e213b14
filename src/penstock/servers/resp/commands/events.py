"""Ids of events. Penstock's are UUIDs. The older commands let the client choose any text: the id is a UUID derived from
it, and the text itself is stored as a header."""

from __future__ import annotations

import re
import uuid
from typing import Annotated

from penstock.domain.errors import InvalidInput
from penstock.domain.message import decode_headers
from penstock.engines.contract import HEADERS, Receipt, Row
from penstock.servers.resp.arguments import Kind, read_text
from penstock.servers.resp.errors import quoted

HEADER = "event-id"
# Random, and must never change.
NAMESPACE = uuid.UUID("6a1f6c1e-5d0b-4f2e-9a57-3c6b1b0f2d44")
MAX_BYTES = 255
UUID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def event_id(data: bytes) -> str | None:
    """The id of the message, or None if `data` cannot be an id."""
    if UUID(data):
        return data.decode()
    if not data or len(data) > MAX_BYTES:
        return None
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    return chosen_id(text)


def read_chosen(data: bytes) -> str:
    """Read the id of a new event: one that `event_id` accepts."""
    if not 1 <= len(data) <= MAX_BYTES:
        raise InvalidInput(
            f"id {quoted(data)} has {len(data)} bytes: an event's id has 1 to {MAX_BYTES} bytes of UTF-8"
        )
    return read_text(data)


ChosenId = Annotated[str, Kind(read_chosen)]


def event_key(data: bytes) -> bytes:
    """The key of the message in the lease cache; empty if `data` cannot be an id."""
    return data if UUID(data) else (event_id(data) or "").encode()


def chosen_id(text: str) -> str:
    try:
        return str(uuid.UUID(text))
    except ValueError:
        return str(uuid.uuid5(NAMESPACE, text))


def shown_id(row: Row, receipt: Receipt) -> bytes:
    """The id in the form shown to clients."""
    if row[HEADERS] is not None:
        chosen = decode_headers(row[HEADERS]).get(HEADER)
        if chosen is not None:
            return chosen.encode()
    return receipt.id_of(row).encode()
