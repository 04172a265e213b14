"""The errors of refused calls. A function answers with a code and the values at fault; the sentences are here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.domain.errors import (
    BatchClosed,
    ConsumerRemoved,
    DuplicateAddress,
    GroupMisused,
    InvalidInput,
    InvalidPolicy,
    NotFound,
    PayloadTooLarge,
    PenstockError,
    Refused,
)
from penstock.domain.validation import nearest, shown

# How many users of a queue an error names.
NAMED = 3


def error(code: str, queue: str, values: list[Any]) -> PenstockError:
    made = _ERRORS[code](queue, *[value.decode() if isinstance(value, bytes) else value for value in values])
    return made


def no_queue(queue: str, known: list[str]) -> NotFound:
    return NotFound(f"there is no queue {shown(queue)}{nearest(queue, known)}")


def no_group(queue: str, group: str, known: list[str]) -> NotFound:
    return NotFound(f"queue {queue!r} has no group {shown(group)}{nearest(group, known)}")


def no_schedule(name: str, known: list[str]) -> NotFound:
    return NotFound(f"there is no schedule {shown(name)}{nearest(name, known)}")


def several(names: list[str]) -> str:
    named = ", ".join(shown(name) for name in names[:NAMED])
    return named if len(names) <= NAMED else f"{named} and {len(names) - NAMED} more"


def scheduled(queue: str, schedules: list[str]) -> Refused:
    return Refused(
        f"queue {shown(queue)} was not deleted: schedule {several(schedules)} would make it anew: remove it first"
    )


def _consumers(queue: str, *names: str) -> Refused:
    return Refused(
        f"queue {shown(queue)} was not deleted: consumer {several(list(names))} is registered: stop it first"
    )


def _closed(_: str, batch: str, owner: str, state: str) -> BatchClosed:
    if state == "cancelling":
        return BatchClosed(f"batch {shown(batch)} of queue {owner!r} was cancelled and takes no more messages")
    return BatchClosed(
        f"batch {shown(batch)} of queue {owner!r} is {state} and takes no more messages: "
        "open a new one of that name (queue.batch, batch_open, QBATCH OPEN, penstock batch open)"
    )


def _duplicate(queue: str, address: str, existing: str) -> DuplicateAddress:
    return DuplicateAddress(
        f"address {shown(address)} of queue {queue!r} already has the live message {existing or None}", existing
    )


_ERRORS: dict[str, Callable[..., PenstockError]] = {
    "TOO_LARGE": lambda queue, size, most: PayloadTooLarge(
        f"payload has {size} bytes: this queue takes at most {most} (max_payload_bytes)"
    ),
    "ADDRESS_WITHOUT_OWNER": lambda queue, address: InvalidInput(
        f"queue {queue!r} has no primary group: address {shown(address)} has no owner"
    ),
    "DUPLICATE_ADDRESS": _duplicate,
    "BATCH_WITHOUT_OWNER": lambda queue, batch, owner: InvalidInput(
        f"queue {owner!r} has no primary group: batch {shown(batch)} could not end"
    ),
    "PART_WITHOUT_OWNER": lambda queue, batch: InvalidInput(
        f"queue {queue!r} has no primary group: its part of batch {shown(batch)} could not end"
    ),
    "BATCH_CLOSED": _closed,
    "NO_BATCH": lambda queue, batch, *known: NotFound(
        f"queue {queue!r} has no batch {shown(batch)}{nearest(batch, known)}"
    ),
    "NO_MESSAGE": lambda queue, message: NotFound(
        f"queue {queue!r} has no message {shown(message)}: it never had, or it is past retention"
    ),
    "STREAM_GROUP": lambda queue, group: GroupMisused(
        f"group {group!r} of queue {queue!r} is read as a stream: receive with another group"
    ),
    "LEASING_GROUP": lambda queue, group: GroupMisused(
        f"group {group!r} of queue {queue!r} is received with leases: stream with another group"
    ),
    "OTHER_STREAM": lambda queue, group, table: GroupMisused(
        f"group {group!r} of queue {queue!r} streams {table}: stream another table with another group"
    ),
    "FOLLOWS_AUDIT": lambda queue, group: InvalidInput(
        f"group {group!r} of queue {queue!r} follows the trail: it has no place in the log"
    ),
    "BEYOND_END": lambda queue, position, last: InvalidInput(
        f"position {position} is beyond the end of the log ({last})"
    ),
    "PRIMARY_GROUP": lambda queue, group: InvalidInput(
        f"group {group!r} is the primary one of queue {queue!r}: it cannot be removed"
    ),
    "SHARDS_IN_USE": lambda queue, before, after: InvalidPolicy(
        f"shards of the ordered queue {queue!r} cannot change from {before} to {after} "
        "while it has live messages: drain or flush it first"
    ),
    "CONSUMER_REMOVED": lambda queue, name: ConsumerRemoved(
        f"consumer {shown(name)} of queue {shown(queue)} is not registered: it never was, or it missed its heartbeats"
        " and must register again"
    ),
    "CONSUMERS_REGISTERED": _consumers,
}
