"""Retention: finished messages leave the log when their history has ended, and nothing leaves before.

A sweep writes down up to where everything is finished now (a mark). When a mark is as old as the queue's
`history_seconds`, the log is trimmed up to it. Dead letters keep their message and its trail until they go themselves.
"""

from __future__ import annotations

from penstock.domain.lifecycle import Event, State
from penstock.domain.times import microseconds
from penstock.engines.sqlite import dead_letters, ending, marks, queues
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.ranges import ranges
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/sweep.sql")
# A queue has about this many marks at a time: history ends that much later than it could.
MARKS_PER_HISTORY = 100
# Beyond any position and any entry.
EVERYTHING = 2**63 - 1
# Positions that one transaction trims: some tens of milliseconds.
AT_ONCE = 10_000


def purge(transaction: Transaction, queue: Queue) -> int:
    """Dead letters past their retention."""
    before = transaction.now - microseconds(queue.policy.dead_letter_seconds)
    return sum(dead_letters.purge_old(transaction, queue, group, before) for group in queues.groups(transaction, queue))


def trim(transaction: Transaction, queue: Queue) -> tuple[int, bool]:
    """Trim a piece of what may go: how many messages went, and whether there is more."""
    _mark(transaction, queue)
    before = transaction.now - microseconds(queue.policy.history_seconds)
    marked: int = transaction.value(SQL.old_mark, {"queue_id": queue.queue_id, "before": before}) or 0
    if marked <= queue.trimmed_position:
        return 0, False
    # What was finished then may be live again: a group was moved back, or a dead letter redriven.
    upto = min(marked, _finished_position(transaction, queue, _active(transaction, queue)))
    if upto <= queue.trimmed_position:
        return 0, False
    end = piece(transaction, queue, upto)
    return trim_to(transaction, queue, end, before), end < upto


def piece(transaction: Transaction, queue: Queue, upto: int) -> int:
    """A stretch that is trimmed in one transaction: others wait for the write lock meanwhile."""
    first = transaction.value(SQL.first_position, {"queue_id": queue.queue_id})
    return upto if first is None else min(upto, first + AT_ONCE - 1)


def _mark(transaction: Transaction, queue: Queue) -> None:
    """Write down up to where everything is finished now, if that was not done lately."""
    at, known = transaction.row(SQL.latest_mark, {"queue_id": queue.queue_id}) or (None, 0)
    apart = microseconds(queue.policy.history_seconds) // MARKS_PER_HISTORY
    if at is not None and transaction.now - at < apart:
        return
    known = max(known, queue.trimmed_position)
    readers = _active(transaction, queue)
    finished = _finished_position(transaction, queue, readers)
    if queue.policy.primary_group is None or not readers:
        # Nobody can say that a message is not wanted any more, because another group may come: it is over when it
        # expires.
        looking = {"queue_id": queue.queue_id, "after": known, "now": transaction.now}
        unexpired = transaction.value(SQL.first_unexpired, looking)
        finished = finished if unexpired is None else min(finished, unexpired - 1)
    if finished > known:
        bindings = {"queue_id": queue.queue_id, "now": transaction.now, "position": finished}
        transaction.run(SQL.make_mark, bindings)


def _finished_position(transaction: Transaction, queue: Queue, readers: list[Group]) -> int:
    """Up to here every message is finished in every group that is in use."""
    last: int = transaction.value(CONNECTION.last_position)
    common = {"queue_id": queue.queue_id, "trimmed_position": queue.trimmed_position}
    for group in readers:
        if group.stream_position is not None:
            last = min(last, _passed_position(transaction, group, group.stream_position, queue.trimmed_position))
            continue
        unfinished = transaction.value(SQL.unfinished, {**common, "group_id": group.group_id})
        if unfinished is not None:
            last = min(last, unfinished - 1)
    return last


def _passed_position(transaction: Transaction, group: Group, mark: int, trimmed_position: int) -> int:
    """Up to here a stream has read everything: the messages, or all that happened to them so far."""
    if group.stream_table == "messages":
        return mark
    reading = {"queue_id": group.queue_id, "mark": mark, "trimmed_position": trimmed_position}
    unread: int | None = transaction.value(SQL.first_unfollowed, reading)
    return EVERYTHING if unread is None else unread - 1


def _active(transaction: Transaction, queue: Queue) -> list[Group]:
    """The primary group always holds back trimming: what it has not read is not lost."""
    idle_since = transaction.now - microseconds(queue.policy.group_idle_seconds)
    bindings = {"queue_id": queue.queue_id, "idle_since": idle_since}
    active = [Group(*row) for row in transaction.rows(SQL.active_groups, bindings)]
    primary = queue.policy.primary_group
    if primary is not None and all(group.name != primary for group in active):
        group = queues.find_group(transaction, queue, primary)
        active += [] if group is None else [group]
    return active


def trim_to(transaction: Transaction, queue: Queue, upto: int, before: int) -> int:
    bindings = {"queue_id": queue.queue_id, "upto": upto}
    transaction.run(CONNECTION.keep_position)
    marks.keep_last(transaction, queue, upto)
    _note_carried(transaction, queue, upto)
    for lane_id, count in transaction.rows(SQL.trim_lanes, bindings):
        transaction.run(SQL.count_trimmed, {"lane_id": lane_id, "count": count})
    trimmed = transaction.changes(SQL.trim_log, bindings)
    for statement in (SQL.trim_runs, SQL.shorten_runs, SQL.trim_cursors, SQL.trim_skips, SQL.set_trimmed):
        transaction.run(statement, bindings)
    transaction.run(SQL.drop_marks, {"queue_id": queue.queue_id, "position": upto})
    _forget(transaction, queue, queue.trimmed_position + 1, upto, (SQL.set_trimmed_entry, SQL.trim_audit))
    transaction.run(SQL.trim_emptied, bindings)
    _drop_removed(transaction, queue, upto)
    transaction.run(SQL.trim_batches, {**bindings, "before": before})
    return trimmed


def remove(transaction: Transaction, queue: Queue, position: int, created_at: int) -> None:
    """The trail of a single message that is gone, and nothing else of the trail: where that begins does not move."""
    gone = {"queue_id": queue.queue_id, "position": position, "created_at": created_at}
    transaction.run(SQL.note_removed, gone)
    _forget(transaction, queue, position, position, (SQL.empty_audit,))
    _drop_removed(transaction, queue, queue.trimmed_position)


def _forget(transaction: Transaction, queue: Queue, first: int, upto: int, trail: tuple[str, ...]) -> None:
    """The trail, the chosen ids and the addresses of messages that are gone."""
    bindings = {"queue_id": queue.queue_id, "from": first, "upto": upto, "span": ending.MAX_SPAN - 1}
    transaction.run(CONNECTION.keep_entry)
    for statement in (*trail, SQL.trim_identities, SQL.trim_addresses):
        transaction.run(statement, bindings)


def _drop_removed(transaction: Transaction, queue: Queue, upto: int) -> None:
    transaction.run(SQL.drop_removed, {"queue_id": queue.queue_id, "upto": upto, "span": ending.MAX_SPAN - 1})


def trim_kept(transaction: Transaction, queue: Queue) -> None:
    """Messages whose dead letter has just gone."""
    followers = [
        group.stream_position
        for group in _active(transaction, queue)
        if group.stream_position is not None and group.stream_table != "messages"
    ]
    bindings = {
        "queue_id": queue.queue_id,
        "upto": queue.trimmed_position,
        "followed": min(followers, default=EVERYTHING),
    }
    transaction.run(CONNECTION.keep_position)
    gone = [position for (position,) in transaction.rows(SQL.trim_kept, bindings)]
    for first, last in ranges(sorted(gone)):
        _forget(transaction, queue, first, last, (SQL.set_trimmed_entry, SQL.trim_audit))


def _note_carried(transaction: Transaction, queue: Queue, upto: int) -> None:
    """An idle group loses what it has not read. No message has position 0: that is where this is written down."""
    for group_id, name in transaction.rows(SQL.carried, {"queue_id": queue.queue_id, "upto": upto}):
        reason = f"group {name} was idle: messages up to position {upto} were trimmed before it read them"
        step = ending.Step(Event.SEEK, State.CANCELLED, 0, 0, "system", reason)
        ending.record(transaction, queue.queue_id, group_id, step)
