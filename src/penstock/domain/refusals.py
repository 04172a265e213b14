"""The errors of calls that the state of a queue refuses, and of names that nothing has: one sentence for all engines.

PostgreSQL has the same texts in its functions; a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.domain.errors import (
    BatchClosed,
    ConsumerRemoved,
    DuplicateAddress,
    GroupMisused,
    InvalidInput,
    InvalidPolicy,
    LogDiverged,
    NotFound,
    RangeTrimmed,
    Refused,
)
from penstock.domain.results import Part
from penstock.domain.validation import nearest, shown

# An error names at most this many schedules or consumers.
NAMED = 3


# -- names that nothing has --------------------------------------------------------------------------------------------


def no_queue(name: str, known: Iterable[str], purpose: str = "") -> NotFound:
    return NotFound(f"there is no queue {shown(name)}{purpose}{nearest(name, known)}")


def no_group(queue: str, name: str, known: Iterable[str]) -> NotFound:
    return NotFound(f"queue {queue!r} has no group {shown(name)}{nearest(name, known)}")


def no_schedule(name: str, known: Iterable[str]) -> NotFound:
    return NotFound(f"there is no schedule {shown(name)}{nearest(name, known)}")


def no_address(queue: str, address: str) -> NotFound:
    return NotFound(f"queue {queue!r} never had a message with address {shown(address)}")


def no_batch(queue: str, name: str, known: Iterable[str]) -> NotFound:
    return NotFound(f"queue {queue!r} has no batch {shown(name)}{nearest(name, known)}")


def no_message(queue: str, message_id: str) -> NotFound:
    return NotFound(f"queue {queue!r} has no message {shown(message_id)}: it never had, or it is past retention")


# -- messages ----------------------------------------------------------------------------------------------------------


def address_without_owner(queue: str, address: str) -> InvalidInput:
    return InvalidInput(f"queue {queue!r} has no primary group: address {shown(address)} has no owner")


def duplicate_address(queue: str, address: str, existing: str | None) -> DuplicateAddress:
    return DuplicateAddress(
        f"address {shown(address)} of queue {queue!r} already has the live message {existing}", existing or ""
    )


def message_held(message_id: str) -> InvalidInput:
    return InvalidInput(f"message {message_id} is held: it has not been handed out, so it has no lease")


# -- batches -----------------------------------------------------------------------------------------------------------


def batch_without_owner(queue: str, batch: str) -> InvalidInput:
    return InvalidInput(f"queue {queue!r} has no primary group: batch {shown(batch)} could not end")


def batch_part_without_owner(queue: str, batch: str) -> InvalidInput:
    return InvalidInput(f"queue {queue!r} has no primary group: its part of batch {shown(batch)} could not end")


def batch_closed(queue: str, batch: str, state: str) -> BatchClosed:
    if state == "cancelling":
        return BatchClosed(f"batch {shown(batch)} of queue {queue!r} was cancelled and takes no more messages")
    return BatchClosed(
        f"batch {shown(batch)} of queue {queue!r} is {state} and takes no more messages: "
        "open a new one of that name (queue.batch, batch_open, QBATCH OPEN, penstock batch open)"
    )


# -- groups and consumers ----------------------------------------------------------------------------------------------


def stream_group(queue: str, group: str) -> GroupMisused:
    return GroupMisused(f"group {group!r} of queue {queue!r} is read as a stream: receive with another group")


def leasing_group(queue: str, group: str) -> GroupMisused:
    return GroupMisused(f"group {group!r} of queue {queue!r} is received with leases: stream with another group")


def other_stream(queue: str, group: str, followed: str, table: str) -> GroupMisused:
    return GroupMisused(f"group {group!r} of queue {queue!r} streams {followed}: stream {table} with another group")


def audit_stream(queue: str, group: str) -> InvalidInput:
    return InvalidInput(f"group {group!r} of queue {queue!r} follows the trail: it has no place in the log")


def beyond_end(position: int, last: int) -> InvalidInput:
    return InvalidInput(f"position {position} is beyond the end of the log ({last})")


def primary_group(queue: str, group: str) -> InvalidInput:
    return InvalidInput(f"group {group!r} is the primary one of queue {queue!r}: it cannot be removed")


def consumer_removed(queue: str, name: str) -> ConsumerRemoved:
    return ConsumerRemoved(
        f"consumer {shown(name)} of queue {shown(queue)} is not registered: it never was, or it missed its heartbeats"
        " and must register again"
    )


# -- marks and windows -------------------------------------------------------------------------------------------------


def mark_invalid(mark: str) -> InvalidInput:
    return InvalidInput(f"{shown(mark)} is not a mark of this store: its marks are like 25:1763424000000000, or 0")


def mark_beyond_log(queue: str, table: str, mark: object, last: int) -> LogDiverged:
    return LogDiverged(
        f"the {table} of queue {queue!r} end at {last}, before the mark {mark}: the store is older than "
        "what was read from it, perhaps a restored copy"
    )


def mark_diverged(queue: str, table: str, mark: object) -> LogDiverged:
    return LogDiverged(
        f"the mark {mark} is behind a row of the {table} of queue {queue!r} that this store does not "
        "have: it was restored from a copy after that row was read, and has gone on otherwise"
    )


def range_trimmed(queue: str, table: str, first: int, last: int, begins: int) -> RangeTrimmed:
    return RangeTrimmed(
        f"{first} to {last} of the {table} of queue {queue!r} are past retention; what is left begins after {begins}"
    )


def rows_removed(part: Part, table: str, count: int) -> RangeTrimmed:
    """The rows of a part were removed while it was read, and only `count` are left."""
    return RangeTrimmed(
        f"{part.count - count} of {part.count} {table} of queue {part.queue!r} between {part.start} and {part.end} "
        "were removed while they were being read: the queue was flushed, or they are past retention"
    )


def no_size(table: str) -> InvalidInput:
    return InvalidInput(f"{table} has no size: limit it by rows")


# -- queues ------------------------------------------------------------------------------------------------------------


def shards_in_use(queue: str, before: int, after: int) -> InvalidPolicy:
    return InvalidPolicy(
        f"shards of the ordered queue {queue!r} cannot change from {before} to {after} "
        "while it has live messages: drain or flush it first"
    )


def queue_scheduled(queue: str, schedules: Sequence[str]) -> Refused:
    return Refused(
        f"queue {shown(queue)} was not deleted: schedule {_several(schedules)} would make it anew: remove it first"
    )


def queue_consumed(queue: str, consumers: Sequence[str]) -> Refused:
    return Refused(f"queue {shown(queue)} was not deleted: consumer {_several(consumers)} is registered: stop it first")


def _several(names: Sequence[str]) -> str:
    named = ", ".join(shown(name) for name in names[:NAMED])
    return named if len(names) <= NAMED else f"{named} and {len(names) - NAMED} more"
