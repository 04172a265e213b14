"""Conversion of a row to a message. Every engine returns the columns in this order."""

from __future__ import annotations

from typing import Any

from penstock.domain.message import BATCH_HEADER, BYTES, SYSTEM, Message, decode_headers
from penstock.domain.timestamps import to_optional_time, to_time


def message(queue: str, message_id: str, row: tuple[Any, ...]) -> Message:
    (
        position, priority, created_at, _, content_type, headers, expires_at, deadline_at, address, key, batch,
        created_by, available_at, payload,
    ) = row  # fmt: skip
    named = decode_headers(headers)
    return Message(
        id=message_id,
        queue=queue,
        payload=payload,
        content_type=content_type or BYTES,
        headers=named,
        # A message that ended while held is stored in a lane with a negative priority.
        priority=priority if priority >= 0 else -1 - priority,
        position=position,
        created_at=to_time(created_at),
        created_by=created_by or SYSTEM,
        available_at=to_time(created_at if available_at is None else available_at),
        expires_at=to_optional_time(expires_at),
        deadline_at=to_optional_time(deadline_at),
        address=address,
        key=key,
        batch=batch or named.get(BATCH_HEADER),
    )
