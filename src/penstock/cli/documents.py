"""JSON documents of `--json`. Times are ISO 8601 in UTC; fields are named as in Python."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.client.delivery import Delivery
from penstock.client.documents import payload_fields
from penstock.domain.results import ConsumerInfo, GroupStats, QueueInfo

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
