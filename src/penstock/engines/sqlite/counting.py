"""Counts of a queue, in one snapshot: from counters and small tables, never by reading messages."""

from __future__ import annotations

from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.observations import GroupStats
from penstock.domain.times import SECOND
from penstock.engines.sqlite import queues
from penstock.engines.sqlite.looking import SQL
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.transaction import Transaction


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
    count: int = transaction.value(SQL.unread_by_nobody, bindings)
    return count


def _stats(transaction: Transaction, queue: Queue, group: Group) -> GroupStats:
    counts = transaction.rows(SQL.group_counts, {"group_id": group.group_id})[0]
    outcomes = {str(outcome): count for outcome, count in zip(_COUNTED, counts, strict=False)}
    unread, skipped, leased, tracked_leased, redo, backing_off, dead, consumers = counts[len(_COUNTED) :]
    if group.stream_position is not None:
        return _stream_stats(transaction, queue, group, outcomes)
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


def _stream_stats(transaction: Transaction, queue: Queue, group: Group, outcomes: dict[str, int]) -> GroupStats:
    """A stream has no leases: what is behind its cursor is done. One that follows the trail lags by what has ended."""
    every = transaction.value(SQL.sent_count, {"queue_id": queue.queue_id, "after": 0})
    count = SQL.sent_count if group.stream_table == "messages" else SQL.ended_count
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
    )


def _oldest_age(transaction: Transaction, queue: Queue, group: Group) -> float | None:
    bindings = {
        "queue_id": queue.queue_id,
        "group_id": group.group_id,
        "trimmed_position": queue.trimmed_position,
    }
    oldest = transaction.value(SQL.oldest_ready, bindings)
    return None if oldest is None else max(0.0, (transaction.now - oldest) / SECOND)
