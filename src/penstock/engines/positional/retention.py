"""Retention: finished messages are trimmed when their history has ended, and not before.

A sweep records up to where every message is finished (a mark). When a mark is as old as `history_seconds`, the log is
trimmed up to it. Dead letters keep their message and its audit until they are deleted themselves.
"""

from __future__ import annotations

from penstock.domain import reasons
from penstock.domain.lifecycle import Event, State
from penstock.domain.timestamps import microseconds
from penstock.engines.positional import audit, dead_letters, marks, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue
from penstock.engines.positional.ranges import contiguous_ranges

# About how many marks a queue has at a time: history ends later by one interval between them.
MARKS_PER_HISTORY = 100
# Greater than any position or entry.
EVERYTHING = 2**63 - 1
# Positions that one transaction trims, in some tens of milliseconds.
AT_ONCE = 10_000


def purge(transaction: Transaction, queue: StoredQueue) -> int:
    """Delete dead letters past their retention."""
    before = transaction.now - microseconds(queue.policy.dead_letter_seconds)
    return sum(dead_letters.purge_old(transaction, queue, group, before) for group in queues.groups(transaction, queue))


def trim(transaction: Transaction, queue: StoredQueue) -> tuple[int, bool]:
    """Trim part of what may be removed; return how many messages, and whether there is more."""
    _mark(transaction, queue)
    before = transaction.now - microseconds(queue.policy.history_seconds)
    marked: int = transaction.value("old_mark", {"queue_id": queue.queue_id, "before": before}) or 0
    if marked <= queue.trimmed_position:
        return 0, False
    # A message that was finished then may be live again, after a seek back or a redrive.
    upto = min(marked, _finished_position(transaction, queue, active(transaction, queue)))
    if upto <= queue.trimmed_position:
        return 0, False
    end = piece(transaction, queue, upto)
    return trim_to(transaction, queue, end, before), end < upto


def piece(transaction: Transaction, queue: StoredQueue, upto: int) -> int:
    """The end of the part that one transaction trims; other writers wait for it."""
    first = transaction.value("first_position", {"queue_id": queue.queue_id})
    return upto if first is None else min(upto, first + AT_ONCE - 1)


def _mark(transaction: Transaction, queue: StoredQueue) -> None:
    """Record up to where every message is finished now, unless that was done recently."""
    at, known = transaction.row("latest_mark", {"queue_id": queue.queue_id}) or (None, 0)
    apart = microseconds(queue.policy.history_seconds) // MARKS_PER_HISTORY
    if at is not None and transaction.now - at < apart:
        return
    known = max(known, queue.trimmed_position)
    readers = active(transaction, queue)
    finished = _finished_position(transaction, queue, readers)
    if queue.policy.primary_group is None or not readers:
        # A new group may still want any message, so it is finished only when it expires.
        looking = {"queue_id": queue.queue_id, "after": known, "now": transaction.now}
        unexpired = transaction.value("first_unexpired", looking)
        finished = finished if unexpired is None else min(finished, unexpired - 1)
    if finished > known:
        bindings = {"queue_id": queue.queue_id, "now": transaction.now, "position": finished}
        transaction.run("make_mark", bindings)


def _finished_position(transaction: Transaction, queue: StoredQueue, readers: list[Group]) -> int:
    """The position up to which every message is finished in every active group."""
    last: int = transaction.value("last_position", {"queue_id": queue.queue_id})
    common = {"queue_id": queue.queue_id, "trimmed_position": queue.trimmed_position}
    for group in readers:
        if group.stream_position is not None:
            last = min(last, _passed_position(transaction, group, group.stream_position, queue.trimmed_position))
            continue
        unfinished = transaction.value("first_unfinished", {**common, "group_id": group.group_id})
        if unfinished is not None:
            last = min(last, unfinished - 1)
    return last


def _passed_position(transaction: Transaction, group: Group, mark: int, trimmed_position: int) -> int:
    """The position up to which a stream group has read everything: the messages, or their audit so far."""
    if group.stream_table == "messages":
        return mark
    reading = {"queue_id": group.queue_id, "mark": mark, "trimmed_position": trimmed_position}
    unread: int | None = transaction.value("first_unfollowed", reading)
    return EVERYTHING if unread is None else unread - 1


def active(transaction: Transaction, queue: StoredQueue) -> list[Group]:
    """Groups that hold back trimming: those used recently, and always the primary group."""
    idle_since = transaction.now - microseconds(queue.policy.group_idle_seconds)
    bindings = {"queue_id": queue.queue_id, "idle_since": idle_since}
    active = [Group(*row) for row in transaction.rows("active_groups", bindings)]
    primary = queue.policy.primary_group
    if primary is not None and all(group.name != primary for group in active):
        group = queues.find_group(transaction, queue, primary)
        active += [] if group is None else [group]
    return active


def trim_to(transaction: Transaction, queue: StoredQueue, upto: int, before: int) -> int:
    bindings = {"queue_id": queue.queue_id, "upto": upto}
    transaction.run("keep_position")
    marks.keep_last(transaction, queue, upto)
    _record_idle_groups(transaction, queue, upto)
    for lane_id, count in transaction.rows("trim_lanes", bindings):
        transaction.run("count_trimmed", {"lane_id": lane_id, "count": count})
    trimmed = transaction.changes("trim_log", bindings)
    for statement in ("trim_runs", "shorten_runs", "trim_cursors", "trim_skips", "set_trimmed_position"):
        transaction.run(statement, bindings)
    transaction.run("drop_marks", {"queue_id": queue.queue_id, "position": upto})
    _forget(transaction, queue, queue.trimmed_position + 1, upto, ("set_trimmed_entry", "trim_audit"))
    transaction.run("trim_emptied", bindings)
    _drop_removed(transaction, queue, upto)
    transaction.run("trim_batches", {**bindings, "before": before})
    transaction.run("trim_batch_queues")
    return trimmed


def remove(transaction: Transaction, queue: StoredQueue, position: int, created_at: int) -> None:
    """Delete the audit of a single removed message; the start of the audit does not move."""
    gone = {"queue_id": queue.queue_id, "position": position, "created_at": created_at}
    transaction.run("note_removed_message", gone)
    _forget(transaction, queue, position, position, ("empty_audit",))
    _drop_removed(transaction, queue, queue.trimmed_position)


def _forget(
    transaction: Transaction, queue: StoredQueue, first: int, upto: int, audit_statements: tuple[str, ...]
) -> None:
    """Delete the audit, chosen ids and addresses of removed messages."""
    bindings = {"queue_id": queue.queue_id, "from": first, "upto": upto, "span": audit.MAX_SPAN - 1}
    transaction.run("keep_entry")
    for statement in audit_statements:
        transaction.run(statement, bindings)
    own = {"queue_id": queue.queue_id}
    for find, drop in (("trimmed_identities", "drop_identities"), ("trimmed_addresses", "drop_addresses")):
        transaction.rows_of(drop, [value for (value,) in transaction.rows(find, bindings)], own)


def _drop_removed(transaction: Transaction, queue: StoredQueue, upto: int) -> None:
    transaction.run("drop_removed_messages", {"queue_id": queue.queue_id, "upto": upto, "span": audit.MAX_SPAN - 1})


def trim_kept(transaction: Transaction, queue: StoredQueue) -> None:
    """Trim messages whose dead letter was just deleted."""
    followers = [
        group.stream_position
        for group in active(transaction, queue)
        if group.stream_position is not None and group.stream_table != "messages"
    ]
    bindings = {
        "queue_id": queue.queue_id,
        "upto": queue.trimmed_position,
        "followed": min(followers, default=EVERYTHING),
    }
    transaction.run("keep_position")
    gone = [position for (position,) in transaction.rows("trim_kept", bindings)]
    for first, last in contiguous_ranges(sorted(gone)):
        _forget(transaction, queue, first, last, ("set_trimmed_entry", "trim_audit"))


def _record_idle_groups(transaction: Transaction, queue: StoredQueue, upto: int) -> None:
    """Record in the audit, at position 0, that an idle group lost unread messages."""
    for group_id, name in transaction.rows("idle_groups_passed", {"queue_id": queue.queue_id, "upto": upto}):
        reason = reasons.TRIMMED_UNREAD.format(name, upto)
        step = audit.AuditStep(Event.SEEK, State.CANCELLED, 0, 0, "system", reason)
        audit.record(transaction, queue.queue_id, group_id, step)
