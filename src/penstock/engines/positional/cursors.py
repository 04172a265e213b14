"""Cursors: moving a group back to read again, or forward to skip messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from penstock.domain import reasons, refusals
from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.engines.positional import audit, outcomes, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue
from penstock.engines.positional.ranges import contiguous_ranges

# Positions that are counted at a time when a cursor moves back, to bound memory.
PIECE = 50_000
# Beyond every position.
FURTHEST = 2**62


class _Lane(NamedTuple):
    lane_id: int
    trimmed: int
    position: int
    passed: int


def seek(transaction: Transaction, name: str, group_name: str, target: int | str, is_time: bool) -> int:
    queue = queues.get(transaction, name)
    group = queues.ensure_group(transaction, queue, group_name)
    check_place(queue, group)
    position = place_of(transaction, queue, target, is_time)
    if group.stream_position is not None:
        from penstock.engines.positional import windows

        windows.place(transaction, group, position)
        return position
    bindings = {"queue_id": queue.queue_id, "group_id": group.group_id, "trimmed_position": queue.trimmed_position}
    for row in transaction.rows("group_lanes", bindings):
        _seek_lane(transaction, queue, group, _Lane(*row), position)
    return position


def check_place(queue: StoredQueue, group: Group | None) -> None:
    if group is not None and group.stream_position is not None and group.stream_table != "messages":
        raise refusals.audit_stream(queue.name, group.name)


def place_of(transaction: Transaction, queue: StoredQueue, target: int | str, is_time: bool) -> int:
    """The position that a seek target resolves to."""
    last: int = transaction.value("last_position", {"queue_id": queue.queue_id})
    if target == "start":
        return queue.trimmed_position
    if target == "end":
        return last
    assert isinstance(target, int)
    if is_time:
        return max(queue.trimmed_position, position_at(transaction, queue.queue_id, target))
    if target > last:
        raise refusals.beyond_end(target, last)
    return max(queue.trimmed_position, target)


def position_at(transaction: Transaction, queue_id: int, at: int) -> int:
    """The last position sent before a time."""
    low, high = 0, transaction.value("last_position", {"queue_id": queue_id})
    while low < high:
        middle = (low + high + 1) // 2
        created_at = transaction.value("created_at", {"position": middle, "queue_id": queue_id})
        if created_at is not None and created_at < at:
            low = middle
        else:
            high = middle - 1
    return low


def _seek_lane(transaction: Transaction, queue: StoredQueue, group: Group, lane: _Lane, position: int) -> None:
    if position < lane.position:
        _rewind(transaction, queue, group, lane, position)
    elif position > lane.position:
        _skip_forward(transaction, queue, group, lane, position)
    _revive_skipped(transaction, queue, group, lane, max(position, lane.position))
    counted = {"lane_id": lane.lane_id, "after": queue.trimmed_position, "upto": position}
    passed = lane.trimmed + transaction.value("count_lane_messages", counted)
    transaction.run("move_cursor", (group.group_id, lane.lane_id, position, passed))


def _rewind(transaction: Transaction, queue: StoredQueue, group: Group, lane: _Lane, position: int) -> None:
    """Move back: messages that have ended are ready again, and no longer count as ended."""
    queues.recheck_expiry(transaction, queue.queue_id, group.group_id, 0)
    counts: Counter[str] = Counter()
    between = {"lane_id": lane.lane_id, "after": position, "upto": lane.position}
    for first, last in transaction.rows("lane_runs", between):
        bounds = {"group_id": group.group_id, "first": first, "last": last}
        transaction.run("skip_live", bounds)
        for start in range(first, last + 1, PIECE):
            ended = _ended(transaction, group, start, min(last, start + PIECE - 1))
            for again_first, again_last in contiguous_ranges(sorted(ended)):
                step = audit.AuditStep(Event.SEEK, State.READY, again_first, again_last, "system")
                audit.record(transaction, queue.queue_id, group.group_id, step)
            counts.update(ended.values())
        transaction.run("remove_dead_letters", bounds)
    uncount_outcomes(transaction, group, counts)


def _revive_skipped(transaction: Transaction, queue: StoredQueue, group: Group, lane: _Lane, after: int) -> None:
    """Messages ahead of the cursor that have ended are ready again too, such as those that were leased during an
    earlier seek."""
    counts: Counter[str] = Counter()
    reading = {"group_id": group.group_id, "lane_id": lane.lane_id, "first": after + 1, "last": FURTHEST}
    skipped = [position for (position,) in transaction.rows("skipped_in_range", reading)]
    for first, last in contiguous_ranges(skipped):
        ended = _ended(transaction, group, first, last)
        counts.update(ended.values())
        for again_first, again_last in contiguous_ranges(sorted(ended)):
            step = audit.AuditStep(Event.SEEK, State.READY, again_first, again_last, "system")
            audit.record(transaction, queue.queue_id, group.group_id, step)
            bounds = {"group_id": group.group_id, "first": again_first, "last": again_last}
            transaction.run("remove_dead_letters", bounds)
            transaction.rows("remove_skips", {**bounds, "lane_id": lane.lane_id})
    if counts:
        queues.recheck_expiry(transaction, queue.queue_id, group.group_id, 0)
        uncount_outcomes(transaction, group, counts)


def uncount_outcomes(transaction: Transaction, group: Group, counts: Mapping[str, int]) -> None:
    """Subtract messages that are live again from the counts of their outcomes."""
    every = {str(outcome): counts.get(outcome, 0) for outcome in OUTCOMES}
    transaction.run("uncount_outcomes", {"group_id": group.group_id, **every})


def _ended(transaction: Transaction, group: Group, first: int, last: int) -> dict[int, str]:
    """The outcome of each message of a range that has ended in the group."""
    states: dict[int, str] = {}
    reading = {"group_id": group.group_id, "after": first - 1, "upto": last, "span": audit.MAX_SPAN}
    for entry_first, entry_last, state in transaction.rows("terminal_entries", reading):
        for position in range(max(first, entry_first), min(last, entry_last) + 1):
            states[position] = state
    return {position: state for position, state in states.items() if State(state) in OUTCOMES}


def _skip_forward(transaction: Transaction, queue: StoredQueue, group: Group, lane: _Lane, position: int) -> None:
    """Move forward: skipped messages are neither delivered nor ended, except those with an address or a batch, which
    are cancelled."""
    between = {"lane_id": lane.lane_id, "after": lane.position, "upto": position}
    for first, last in transaction.rows("lane_runs", between):
        bounds = {"group_id": group.group_id, "first": first, "last": last}
        if group.name == queue.policy.primary_group:
            for (owned,) in transaction.rows("owned_messages", bounds):
                step = audit.AuditStep(Event.SEEK, State.CANCELLED, owned, owned, "system", reasons.PASSED_BY_SEEK)
                outcomes.end(transaction, queue, group, step)
        transaction.rows("remove_skips", {**bounds, "lane_id": lane.lane_id})
