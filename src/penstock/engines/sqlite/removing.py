"""Removing messages for good: single ones, or the oldest. Retention, brought forward by an operator.

Where a message is live it ends first: it is counted as cancelled in the group, its lease is lost, its address is free
and its batch goes on without it. Then the message leaves the log together with its trail. Trimming keeps dead letters,
as retention does; removing a message removes its dead letters too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.domain.lifecycle import Event, State
from penstock.domain.times import microseconds
from penstock.engines.sqlite import ending, promoting, queues, seeking, sending, tracking, trimming
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.ending import Step
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.ranges import ranges
from penstock.engines.sqlite.receiving import SQL as RECEIVE
from penstock.engines.sqlite.tracking import Lease
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/remove.sql")
REASON = "it was removed"


def remove(transaction: Transaction, name: str, ids: Sequence[str]) -> int:
    """Single messages, wherever they are; counts those that were there."""
    queue = queues.find(transaction, name)
    if queue is None:
        return 0
    removed = 0
    for message_id in dict.fromkeys(ids):
        place = sending.locate(transaction, queue, message_id)
        if place is not None and place.held_id is not None:
            place = _withdraw(transaction, queue, message_id, place.held_id)
        if place is not None and place.position is not None:
            _remove_at(transaction, queue, place.position)
            removed += 1
    return removed


def _withdraw(transaction: Transaction, queue: Queue, message_id: str, held_id: int) -> sending.Place | None:
    """A held message ends in all groups, and gets a place in the log from which it can go. Nobody has to hear of a dead
    letter that goes with it."""
    heard = len(transaction.deaths)
    promoting.withdraw(transaction, queue, [held_id], _step(0, 0))
    del transaction.deaths[heard:]
    return sending.locate(transaction, queue, message_id)


def _remove_at(transaction: Transaction, queue: Queue, position: int) -> None:
    [(lane_id, created_at)] = transaction.rows(SQL.lane_at, {"position": position})
    _end_live(transaction, queue, position, position)
    at = {"position": position, "queue_id": queue.queue_id, "lane_id": lane_id}
    transaction.run(CONNECTION.keep_position)
    for statement in (SQL.unskip_at, SQL.unbury_at, SQL.remove_message):
        transaction.run(statement, at)
    if position > queue.trimmed_position:
        _leave_lane(transaction, lane_id, position)
    trimming.remove(transaction, queue, position, created_at)


def _leave_lane(transaction: Transaction, lane_id: int, position: int) -> None:
    """The stretch around it falls apart, and everything counted from the lane's beginning is one less."""
    at = {"lane_id": lane_id, "position": position}
    [(first, last, before)] = transaction.rows(SQL.take_run, at)
    transaction.run(SQL.count_down_runs, at)
    transaction.run(SQL.count_down_cursors, at)
    if first < position:
        transaction.run(SQL.put_run, (lane_id, position - 1, first, before))
    if position < last:
        transaction.run(SQL.put_run, (lane_id, last, position + 1, before + position - first))


def trim(transaction: Transaction, name: str, upto: int | None, keep: int | None) -> tuple[int, bool]:
    """A piece of the oldest messages: all up to a position, or all but the newest. Counts them, and says whether there
    is more to remove."""
    queue = queues.find(transaction, name)
    if queue is None:
        return 0, False
    last: int = transaction.value(CONNECTION.last_position)
    upto = _beyond(transaction, queue, keep or 0) if upto is None else min(upto, last)
    if upto <= queue.trimmed_position:
        return 0, False
    piece = trimming.piece(transaction, queue, upto)
    _end_live(transaction, queue, queue.trimmed_position + 1, piece)
    for group in _readers(transaction, queue):
        _pass(transaction, queue, group, piece)
    before = transaction.now - microseconds(queue.policy.history_seconds)
    return trimming.trim_to(transaction, queue, piece, before), piece < upto


def _beyond(transaction: Transaction, queue: Queue, keep: int) -> int:
    """The position behind which the newest lie that are kept; 0 when there are no more than that."""
    for first, last in transaction.rows(SQL.stretches, {"queue_id": queue.queue_id}):
        if last - first + 1 > keep:
            return int(last) - keep
        keep -= last - first + 1
    return 0


def _readers(transaction: Transaction, queue: Queue) -> list[Group]:
    return [group for group in queues.groups(transaction, queue) if group.stream_position is None]


def _end_live(transaction: Transaction, queue: Queue, first: int, last: int) -> None:
    """Messages in a range of positions, in every group in which they are live."""
    for group in _readers(transaction, queue):
        between = {"group_id": group.group_id, "first": first, "last": last}
        for position, attempt in transaction.rows(SQL.tracked_between, between):
            tracking.forget(transaction, group, position)
            _end(transaction, queue, group, _step(position, position, attempt))
        for row in transaction.rows(SQL.leases_between, between):
            lease = Lease(*row)
            start, end = max(first, lease.first), min(last, lease.last)
            tracking.carve(transaction, lease, start, end)
            _end(transaction, queue, group, _step(start, end, 1))
        for start, end in _unread(transaction, queue, group, first, last):
            _end(transaction, queue, group, _step(start, end))


def _unread(transaction: Transaction, queue: Queue, group: Group, first: int, last: int) -> Iterator[tuple[int, int]]:
    """Ranges that the group has not read and that have not ended in it."""
    reader = {"queue_id": queue.queue_id, "group_id": group.group_id, "trimmed_position": queue.trimmed_position}
    for lane_id, _, cursor, _ in transaction.rows(seeking.SQL.lanes, reader):
        if cursor >= last:
            continue
        between = {"lane_id": lane_id, "after": max(cursor, first - 1), "upto": last}
        for start, end in transaction.rows(seeking.SQL.lane_runs, between):
            inside = {"group_id": group.group_id, "lane_id": lane_id, "first": start, "last": end}
            over = {position for (position,) in transaction.rows(SQL.skipped_between, inside)}
            if over:
                yield from ranges(position for position in range(start, end + 1) if position not in over)
            else:
                yield start, end


def _pass(transaction: Transaction, queue: Queue, group: Group, upto: int) -> None:
    """Nothing up to here is left to be read."""
    reader = {"queue_id": queue.queue_id, "group_id": group.group_id, "trimmed_position": queue.trimmed_position}
    for lane_id, _, cursor, passed in transaction.rows(seeking.SQL.lanes, reader):
        if cursor < upto:
            count = transaction.value(RECEIVE.count_run, {"lane_id": lane_id, "after": cursor, "upto": upto})
            transaction.run(RECEIVE.move_cursor, (group.group_id, lane_id, upto, passed + count))


def _end(transaction: Transaction, queue: Queue, group: Group, step: Step) -> None:
    """Without a dead letter: there will be no message to keep."""
    ending.end(transaction, queue, group, step, letter=False)


def _step(first: int, last: int, attempt: int = 0) -> Step:
    return Step(Event.REMOVE, State.CANCELLED, first, last, "system", REASON, attempt)
