"""The errors of refused calls: a function of the server answers with a code and the values at fault."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.domain import refusals
from penstock.domain.errors import InvalidPolicy, PenstockError, StoreUnavailable
from penstock.domain.message import payload_too_large


def error(code: str, queue: str, values: list[Any]) -> PenstockError:
    return _ERRORS[code](queue, *map(_decoded, values))


def _decoded(value: Any) -> Any:
    if isinstance(value, list):
        return [one.decode() for one in value]
    return value.decode() if isinstance(value, bytes) else value


_ERRORS: dict[str, Callable[..., PenstockError]] = {
    "TOO_LARGE": lambda queue, size, most: payload_too_large(size, most),
    "ADDRESS_WITHOUT_OWNER": refusals.address_without_owner,
    "DUPLICATE_ADDRESS": lambda queue, address, existing: refusals.duplicate_address(queue, address, existing or None),
    "BATCH_WITHOUT_OWNER": lambda queue, batch, owner: refusals.batch_without_owner(owner, batch),
    "PART_WITHOUT_OWNER": refusals.batch_part_without_owner,
    "BATCH_CLOSED": lambda queue, batch, owner, state: refusals.batch_closed(owner, batch, state),
    "NO_BATCH": lambda queue, batch, known: refusals.no_batch(queue, batch, known),
    "NO_MESSAGE": refusals.no_message,
    "JOIN_DROPPED": lambda queue: StoreUnavailable(f"the send to a batch of queue {queue!r} was given up by a sweep"),
    "STREAM_GROUP": refusals.stream_group,
    "LEASING_GROUP": refusals.leasing_group,
    "OTHER_STREAM": lambda queue, group, table: refusals.other_stream(queue, group, table, "another table"),
    "FOLLOWS_AUDIT": refusals.audit_stream,
    "BEYOND_END": lambda queue, position, last: refusals.beyond_end(position, last),
    "PRIMARY_GROUP": refusals.primary_group,
    "SHARDS_IN_USE": refusals.shards_in_use,
    "SHARD_STALE": lambda queue: StoreUnavailable(f"the shards of queue {queue!r} are being replaced: try again"),
    "CONSUMER_REMOVED": refusals.consumer_removed,
    "CONSUMERS_REGISTERED": lambda queue, names: refusals.queue_consumed(queue, names),
}


def shards_spread(queue: str, before: int, after: int) -> InvalidPolicy:
    return InvalidPolicy(
        f"shards of queue {queue!r} cannot change from {before} to {after}: each has a hash slot of its own on the "
        "cluster; delete the queue and declare it again"
    )


def order_in_use(queue: str) -> InvalidPolicy:
    return InvalidPolicy(
        f"ordered of queue {queue!r} cannot change while it has live messages: each shard has a hash slot of its own "
        "on the cluster, and keys would be in other shards; drain or flush it first"
    )
