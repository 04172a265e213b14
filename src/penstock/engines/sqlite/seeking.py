"""Moving a group's cursor: back to read again, or on to pass messages by."""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.engines.sqlite import ending, queues, tracking
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.ranges import ranges
from penstock.engines.sqlite.receiving import SQL as RECEIVE
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/seek.sql")
# Reading again is counted in pieces of this many positions, so that memory stays small however far back it goes.
PIECE = 50_000


class _Lane(NamedTuple):
    lane_id: int
    trimmed: int
    position: int
    passed: int


def seek(transaction: Transaction, name: str, group_name: str, target: int | str, is_time: bool) -> int:
    queue = queues.get(transaction, name)
    group = queues.ensure_group(transaction, queue, group_name)
    if group.stream_position is not None and group.stream_table != "messages":
        raise InvalidInput(f"group {group_name!r} of queue {name!r} follows the trail: it has no place in the log")
    position = _position(transaction, queue, target, is_time)
    if group.stream_position is not None:
        from penstock.engines.sqlite import windows

        windows.place(transaction, group, position)
        return position
    bindings = {"queue_id": queue.queue_id, "group_id": group.group_id, "trimmed_position": queue.trimmed_position}
    for row in transaction.rows(SQL.lanes, bindings):
        _seek_lane(transaction, queue, group, _Lane(*row), position)
    return position


def _position(transaction: Transaction, queue: Queue, target: int | str, is_time: bool) -> int:
    last: int = transaction.value(CONNECTION.last_position)
    if target == "start":
        return queue.trimmed_position
    if target == "end":
        return last
    assert isinstance(target, int)
    if is_time:
        return max(queue.trimmed_position, position_at(transaction, target))
    if target > last:
        raise InvalidInput(f"position {target} is beyond the end of the log ({last})")
    return max(queue.trimmed_position, target)


def position_at(transaction: Transaction, at: int) -> int:
    """The last position sent before a time."""
    low, high = 0, transaction.value(CONNECTION.last_position)
    while low < high:
        middle = (low + high + 1) // 2
        created_at = transaction.value(SQL.at_time, {"position": middle})
        if created_at is not None and created_at < at:
            low = middle
        else:
            high = middle - 1
    return low


def _seek_lane(transaction: Transaction, queue: Queue, group: Group, lane: _Lane, position: int) -> None:
    if position < lane.position:
        _rewind(transaction, queue, group, lane, position)
    elif position > lane.position:
        _pass_by(transaction, queue, group, lane, position)
    counted = {"lane_id": lane.lane_id, "after": queue.trimmed_position, "upto": position}
    passed = lane.trimmed + transaction.value(RECEIVE.count_run, counted)
    transaction.run(RECEIVE.move_cursor, (group.group_id, lane.lane_id, position, passed))


def _rewind(transaction: Transaction, queue: Queue, group: Group, lane: _Lane, position: int) -> None:
    """Finished messages are ready again; they have not ended any more."""
    queues.look_back(transaction, queue.queue_id, group.group_id, 0)
    counts = dict.fromkeys((str(outcome) for outcome in OUTCOMES), 0)
    between = {"lane_id": lane.lane_id, "after": position, "upto": lane.position}
    for first, last in transaction.rows(SQL.lane_runs, between):
        stretch = {"group_id": group.group_id, "first": first, "last": last}
        transaction.run(SQL.skip_live, stretch)
        for start in range(first, last + 1, PIECE):
            ended = _ended(transaction, group, start, min(last, start + PIECE - 1))
            for again_first, again_last in ranges(sorted(ended)):
                step = ending.Step(Event.SEEK, State.READY, again_first, again_last, "system")
                ending.record(transaction, queue.queue_id, group.group_id, step)
            for state in ended.values():
                counts[state] += 1
        transaction.run(SQL.dig_up, stretch)
    transaction.run(SQL.uncount, {"group_id": group.group_id, **counts})


def _ended(transaction: Transaction, group: Group, first: int, last: int) -> dict[int, str]:
    """The outcome of each message in a range that has ended in the group."""
    states: dict[int, str] = {}
    reading = {"group_id": group.group_id, "after": first - 1, "upto": last, "span": ending.MAX_SPAN}
    for entry_first, entry_last, state in transaction.rows(SQL.terminal_entries, reading):
        for position in range(max(first, entry_first), min(last, entry_last) + 1):
            states[position] = state
    return {position: state for position, state in states.items() if State(state) in OUTCOMES}


def _pass_by(transaction: Transaction, queue: Queue, group: Group, lane: _Lane, position: int) -> None:
    """Messages passed by are neither handed out nor ended, unless somebody waits for their end."""
    between = {"lane_id": lane.lane_id, "after": lane.position, "upto": position}
    for first, last in transaction.rows(SQL.lane_runs, between):
        stretch = {"group_id": group.group_id, "first": first, "last": last}
        if group.name == queue.policy.primary_group:
            for (owned,) in transaction.rows(SQL.owned, stretch):
                step = ending.Step(Event.SEEK, State.CANCELLED, owned, owned, "system", "the group was moved past it")
                ending.end(transaction, queue, group, step)
        transaction.rows(tracking.SQL.unskip, {**stretch, "lane_id": lane.lane_id})
