"""Removing messages for good: single ones, or the oldest ones, before retention would.

A message that is live ends first: it is counted as cancelled in the group, its lease is lost, its address is freed and
its batch continues without it. Then message and audit are deleted. Trimming keeps dead letters, as retention does;
removing a single message removes its dead letters too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from penstock.domain import reasons
from penstock.domain.lifecycle import Event, State
from penstock.domain.timestamps import microseconds
from penstock.engines.positional import leases, log, outcomes, promotion, queues, retention
from penstock.engines.positional.audit import AuditStep
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.leases import LeaseRange
from penstock.engines.positional.queues import Group, StoredQueue
from penstock.engines.positional.ranges import contiguous_ranges


def remove(transaction: Transaction, name: str, ids: Sequence[str]) -> int:
    """Remove single messages, whatever their state; return how many there were."""
    queue = queues.find(transaction, name)
    if queue is None:
        return 0
    removed = 0
    for message_id in dict.fromkeys(ids):
        place = log.locate(transaction, queue, message_id)
        if place is not None and place.held_id is not None:
            place = _withdraw(transaction, queue, message_id, place.held_id)
        if place is not None and place.position is not None:
            _remove_at(transaction, queue, place.position)
            removed += 1
    return removed


def _withdraw(transaction: Transaction, queue: StoredQueue, message_id: str, held_id: int) -> log.Location | None:
    """End a held message in all groups and append it, so that it can be removed like any other. The dead letter that is
    removed with it is not logged."""
    heard = len(transaction.deaths)
    promotion.withdraw(transaction, queue, [held_id], _step(0, 0))
    del transaction.deaths[heard:]
    return log.locate(transaction, queue, message_id)


def _remove_at(transaction: Transaction, queue: StoredQueue, position: int) -> None:
    [(lane_id, created_at)] = transaction.rows("lane_at", {"position": position})
    _end_live(transaction, queue, position, position)
    at = {"position": position, "queue_id": queue.queue_id, "lane_id": lane_id}
    transaction.run("keep_position")
    for statement in ("remove_skips_at", "remove_dead_letters_at", "remove_message"):
        transaction.run(statement, at)
    if position > queue.trimmed_position:
        _leave_lane(transaction, lane_id, position)
    retention.remove(transaction, queue, position, created_at)


def _leave_lane(transaction: Transaction, lane_id: int, position: int) -> None:
    """Split the run around the position; later counts of the lane decrease by one."""
    at = {"lane_id": lane_id, "position": position}
    [(first, last, before)] = transaction.rows("run_around", at)
    transaction.run("remove_run", (lane_id, last))
    transaction.run("count_down_runs", at)
    transaction.run("count_down_cursors", at)
    if first < position:
        transaction.run("put_run", (lane_id, position - 1, first, before))
    if position < last:
        transaction.run("put_run", (lane_id, last, position + 1, before + position - first))


def trim(transaction: Transaction, name: str, upto: int | None, keep: int | None) -> tuple[int, bool]:
    """Remove part of the oldest messages: all up to a position, or all but the newest `keep`. Returns how many, and
    whether there is more to remove."""
    queue = queues.find(transaction, name)
    if queue is None:
        return 0, False
    last: int = transaction.value("last_position", {"queue_id": queue.queue_id})
    upto = _last_to_trim(transaction, queue, keep or 0) if upto is None else min(upto, last)
    if upto <= queue.trimmed_position:
        return 0, False
    piece = retention.piece(transaction, queue, upto)
    _end_live(transaction, queue, queue.trimmed_position + 1, piece)
    for group in queues.leasing_groups(transaction, queue):
        _pass(transaction, queue, group, piece)
    before = transaction.now - microseconds(queue.policy.history_seconds)
    return retention.trim_to(transaction, queue, piece, before), piece < upto


def _last_to_trim(transaction: Transaction, queue: StoredQueue, keep: int) -> int:
    """The last position before the newest `keep` messages; 0 when there are no more than that."""
    for first, last in transaction.rows("runs_from_end", {"queue_id": queue.queue_id}):
        if last - first + 1 > keep:
            return int(last) - keep
        keep -= last - first + 1
    return 0


def _end_live(transaction: Transaction, queue: StoredQueue, first: int, last: int) -> None:
    """End the messages of a range in every group in which they are live."""
    for group in queues.leasing_groups(transaction, queue):
        between = {"group_id": group.group_id, "first": first, "last": last}
        tracked = transaction.rows("tracked_in_range", between)
        transaction.run("forget_tracked_in_range", between)
        for attempt, alike in groupby(tracked, key=lambda row: row[1]):
            for start, end in contiguous_ranges(position for position, _ in alike):
                _end(transaction, queue, group, _step(start, end, attempt))
        for row in transaction.rows("leases_in_range", between):
            lease = LeaseRange(*row)
            start, end = max(first, lease.first), min(last, lease.last)
            leases.split(transaction, lease, start, end)
            _end(transaction, queue, group, _step(start, end, 1))
        for start, end in _unread(transaction, queue, group, first, last):
            _end(transaction, queue, group, _step(start, end))


def _unread(
    transaction: Transaction, queue: StoredQueue, group: Group, first: int, last: int
) -> Iterator[tuple[int, int]]:
    """Ranges that the group has not read and that have not ended in it."""
    reader = {"queue_id": queue.queue_id, "group_id": group.group_id, "trimmed_position": queue.trimmed_position}
    for lane_id, _, cursor, _ in transaction.rows("group_lanes", reader):
        if cursor >= last:
            continue
        between = {"lane_id": lane_id, "after": max(cursor, first - 1), "upto": last}
        for start, end in transaction.rows("lane_runs", between):
            inside = {"group_id": group.group_id, "lane_id": lane_id, "first": start, "last": end}
            over = {position for (position,) in transaction.rows("skipped_in_range", inside)}
            if over:
                yield from contiguous_ranges(position for position in range(start, end + 1) if position not in over)
            else:
                yield start, end


def _pass(transaction: Transaction, queue: StoredQueue, group: Group, upto: int) -> None:
    """Move the group's cursors past the removed messages."""
    reader = {"queue_id": queue.queue_id, "group_id": group.group_id, "trimmed_position": queue.trimmed_position}
    for lane_id, _, cursor, passed in transaction.rows("group_lanes", reader):
        if cursor < upto:
            count = transaction.value("count_lane_messages", {"lane_id": lane_id, "after": cursor, "upto": upto})
            transaction.run("move_cursor", (group.group_id, lane_id, upto, passed + count))


def _end(transaction: Transaction, queue: StoredQueue, group: Group, step: AuditStep) -> None:
    """End messages without a dead letter, because the message will be deleted."""
    outcomes.end(transaction, queue, group, step, letter=False)


def _step(first: int, last: int, attempt: int = 0) -> AuditStep:
    return AuditStep(Event.REMOVE, State.CANCELLED, first, last, "system", reasons.OF_EVENT[Event.REMOVE], attempt)
