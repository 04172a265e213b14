"""Counts of a queue, in one snapshot: from counters and small tables, never by reading messages."""

from __future__ import annotations

from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.results import GroupStats
from penstock.domain.timestamps import SECOND
from penstock.engines.positional import queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def stats(transaction: Transaction, name: str) -> dict[str, GroupStats]:
    queue = queues.find(transaction, name)
    if queue is None:
        return {}
    return {group.name: _stats(transaction, queue, group) for group in queues.groups(transaction, queue)}


def unread(transaction: Transaction, name: str) -> int:
    queue = queues.find(transaction, name)
    if queue is None:
        return 0
    bindings = {"queue_id": queue.queue_id, "now": transaction.now, "trimmed_position": queue.trimmed_position}
    count: int = transaction.value("count_unread", bindings)
    return count


def unread_after(transaction: Transaction, name: str) -> dict[str, int]:
    queue = queues.find(transaction, name)
    if queue is None:
        return {}
    last = transaction.value("last_position", {"queue_id": queue.queue_id})
    found = {}
    for group in queues.leasing_groups(transaction, queue):
        first = transaction.value("first_unread", _reading(queue, group))
        found[group.name] = last if first is None else first - 1
    return found


def _stats(transaction: Transaction, queue: StoredQueue, group: Group) -> GroupStats:
    counts = transaction.rows("group_counts", {"group_id": group.group_id})[0]
    outcomes = {str(outcome): count for outcome, count in zip(_COUNTED, counts, strict=False)}
    undone = dict(zip(outcomes, counts[len(_COUNTED) :], strict=False))
    endings = {outcome: count + undone[outcome] for outcome, count in outcomes.items()}
    failed_attempts, unread, skipped, leased, tracked_leased, redo, backing_off, dead, consumers = counts[
        2 * len(_COUNTED) :
    ]
    if group.stream_position is not None:
        return _stream_stats(transaction, queue, group, outcomes, endings)
    held = queue.held + backing_off
    in_progress = leased + tracked_leased
    available = unread - skipped
    done = outcomes[State.SUCCEEDED]
    return GroupStats(
        total=held + available + redo + in_progress + done + dead,
        in_progress=in_progress,
        redo=redo,
        done=done,
        available=available,
        held=held,
        dead=dead,
        consumers=consumers,
        oldest_age_seconds=_oldest_age(transaction, queue, group) if available or redo else None,
        lag=available,
        outcomes=outcomes,
        endings=endings,
        failed_attempts=failed_attempts,
    )


# The order of the columns that count outcomes.
_COUNTED = (
    State.SUCCEEDED,
    State.REJECTED,
    State.FAILED,
    State.LEASE_EXPIRED,
    State.EXPIRED,
    State.CANCELLED,
)
assert set(_COUNTED) == set(OUTCOMES)


def _stream_stats(
    transaction: Transaction, queue: StoredQueue, group: Group, outcomes: dict[str, int], endings: dict[str, int]
) -> GroupStats:
    """A stream group has no leases: messages before its cursor are done. The lag of a group that streams the audit is
    the number of messages that ended after its cursor."""
    every = transaction.value("count_sent", {"queue_id": queue.queue_id, "after": 0})
    count = "count_sent" if group.stream_table == "messages" else "count_ended"
    lag = min(every, transaction.value(count, {"queue_id": queue.queue_id, "after": group.stream_position}))
    return GroupStats(
        total=every + queue.held,
        in_progress=0,
        redo=0,
        done=every - lag,
        available=lag,
        held=queue.held,
        dead=0,
        consumers=0,
        oldest_age_seconds=None,
        lag=lag,
        outcomes=outcomes,
        endings=endings,
    )


def _oldest_age(transaction: Transaction, queue: StoredQueue, group: Group) -> float | None:
    oldest = transaction.value("oldest_ready", _reading(queue, group))
    return None if oldest is None else max(0.0, (transaction.now - oldest) / SECOND)


def _reading(queue: StoredQueue, group: Group) -> dict[str, int]:
    return {"queue_id": queue.queue_id, "group_id": group.group_id, "trimmed_position": queue.trimmed_position}
