"""What programs get: the JSON documents that answer `--json`.

Times are ISO 8601 in UTC, names are those of Python. A payload is the JSON value it is (`payload`); any other content
is given as base64 (`payload_base64`), with its `content_type` beside it.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from penstock.client.delivery import Delivery
from penstock.domain.errors import InvalidInput
from penstock.domain.message import JSON, Message, decode_json
from penstock.domain.observations import ConsumerInfo, DeadLetter, GroupStats, QueueInfo
from penstock.domain.recurrence import Schedule

DELIVERY_FIELDS = (
    "id",
    "queue",
    "group",
    "consumer",
    "token",
    "attempt",
    "lease_ends_at",
    "position",
    "priority",
    "headers",
    "created_at",
    "created_by",
    "expires_at",
    "deadline_at",
    "address",
    "key",
    "batch",
)


def delivery_document(delivery: Delivery) -> dict[str, Any]:
    fields = {name: getattr(delivery, name) for name in DELIVERY_FIELDS}
    return {**fields, **payload_fields(delivery.payload, delivery.content_type)}


def with_payload(value: Message | DeadLetter | Schedule) -> dict[str, Any]:
    fields = msgspec.structs.asdict(value)
    payload, content_type = fields.pop("payload"), fields.pop("content_type")
    return {**fields, **payload_fields(payload, content_type)}


def payload_fields(payload: bytes, content_type: str) -> dict[str, Any]:
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


def group_document(queue: str, group: str, stats: GroupStats, paused: bool) -> dict[str, Any]:
    return {"queue": queue, "group": group, "paused": paused, **msgspec.structs.asdict(stats)}


def queue_document(
    info: QueueInfo,
    stats: dict[str, GroupStats],
    consumers: list[ConsumerInfo],
    batches: list[Any],
) -> dict[str, Any]:
    return {
        "name": info.name,
        "created_at": info.created_at,
        "policy": info.policy,
        "groups": stats,
        "consumers": consumers,
        "batches": batches,
    }
