"""Bodies of sends: the payload as a JSON value or as base64, with the options of a message."""

from __future__ import annotations

import base64
import binascii
from typing import Any, ClassVar

from msgspec import UNSET, Raw, UnsetType

from penstock.domain.errors import InvalidInput
from penstock.domain.message import JSON, Draft, Outgoing, decode_json, draft
from penstock.domain.validation import shown
from penstock.servers.http.api.inputs import Input
from penstock.servers.http.api.values import (
    Address,
    Base64,
    BatchName,
    Delay,
    MessageId,
    Name,
    PositiveSeconds,
    Priority,
    QueueName,
    Time,
)


class NewContent(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Either `payload`, any JSON value, or `payload_base64`, any bytes."""

    either: ClassVar[tuple[str, ...]] = ("payload", "payload_base64")
    wholes: ClassVar[tuple[str, ...]] = ("priority",)

    payload: Raw | UnsetType = UNSET
    payload_base64: Base64 | UnsetType = UNSET
    content_type: Name | None = None
    headers: dict[str, str] | None = None
    priority: Priority = 0
    ttl_seconds: PositiveSeconds | None = None
    key: Name | None = None

    def outgoing(self, **options: Any) -> Outgoing:
        payload, content_type = self._payload()
        return Outgoing(
            payload=payload,
            content_type=content_type,
            headers=self.headers,
            priority=self.priority,
            ttl_seconds=self.ttl_seconds,
            key=self.key,
            **options,
        )

    def _payload(self) -> tuple[bytes, str | None]:
        if isinstance(self.payload, Raw):
            # Stored byte for byte, to keep numbers beyond 2^53 and the order of members.
            payload = bytes(self.payload)
            decode_json(payload)
            return payload, JSON if self.content_type is None else self.content_type
        assert isinstance(self.payload_base64, str)
        try:
            return base64.b64decode(self.payload_base64, validate=True), self.content_type
        except (binascii.Error, ValueError):
            raise InvalidInput(f"payload_base64 {shown(self.payload_base64)} is not base64") from None


class NewMessage(NewContent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to send. The same `id` again is the same send; for options left out the queue's policy applies."""

    id: MessageId | None = None
    delay_seconds: Delay | None = None
    deadline_at: Time | None = None
    address: Address | None = None
    created_by: Name = "system"
    batch: BatchName | None = None
    batch_queue: QueueName | None = None

    def draft(self) -> Draft:
        outgoing = self.outgoing(
            id=self.id,
            delay_seconds=self.delay_seconds,
            deadline_at=self.deadline_at,
            address=self.address,
            created_by=self.created_by,
        )
        return draft(outgoing, self.batch, None, self.batch_queue)


class NewMessages(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of them are sent, or none."""

    messages: list[NewMessage]
