"""Read-only queries: single messages, what comes next, the audit of a message, and what has ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.domain import refusals
from penstock.domain.identity import made_id
from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.domain.message import Message
from penstock.domain.results import Archived, AuditEntry, MessageState
from penstock.engines import message_rows
from penstock.engines.positional import audit, log, queues, ranges
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.log import Location
from penstock.engines.positional.queues import Group, StoredQueue


def place(transaction: Transaction, queue: StoredQueue, message_id: str) -> Location:
    found = log.locate(transaction, queue, message_id)
    if found is None:
        raise refusals.no_message(queue.name, message_id)
    return found


def find(transaction: Transaction, name: str, message_id: str) -> Message:
    queue = queues.get(transaction, name)
    found = place(transaction, queue, message_id)
    if found.position is not None:
        return message_at(transaction, queue, found.position)
    return _message(transaction, queue, transaction.rows("held_message", {"held_id": found.held_id})[0])


def message_at(transaction: Transaction, queue: StoredQueue, position: int) -> Message:
    return _message(transaction, queue, transaction.rows("message_at", {"position": position})[0])


def _message(transaction: Transaction, queue: StoredQueue, row: tuple[Any, ...]) -> Message:
    position, _, created_at, chosen, *_ = row
    return message_rows.message(queue.name, chosen or made_id(created_at, transaction.salt, position), row)


def peek(transaction: Transaction, name: str, group_name: str, limit: int) -> list[Message]:
    queue = queues.find(transaction, name)
    if queue is None:
        return []
    group = queues.find_group(transaction, queue, group_name)
    group_id = queues.NO_GROUP if group is None else group.group_id
    common = {"group_id": group_id, "now": transaction.now, "limit": limit}
    candidates = [(priority, 0, position) for position, priority in transaction.rows("peek_tracked", common)]
    candidates += [(priority, 0, position) for position, priority in transaction.rows("peek_leased", common)]
    unread = (queue.queue_id, group_id, queue.trimmed_position)
    for lane_id, priority, _, _, _, after, *_ in transaction.rows("unread_lanes", unread):
        reading = {**common, "lane_id": lane_id, "priority": priority, "after": after}
        reading["at_most_once"] = int(queue.policy.at_most_once)
        candidates += [(priority, 1, position) for position, _ in transaction.rows("peek_lane", reading)]
    candidates.sort()
    if queue.policy.ordered:
        candidates = _unblocked(transaction, group_id, candidates)
    return [message_at(transaction, queue, position) for _, _, position in candidates[:limit]]


def _unblocked(
    transaction: Transaction, group_id: int, candidates: list[tuple[int, int, int]]
) -> list[tuple[int, int, int]]:
    """Leave out messages of an ordered queue that wait for another message of their shard."""
    waits: dict[int, tuple[int, int]] = {}
    for shard, *place in transaction.rows("busy_shards", {"group_id": group_id, "now": transaction.now}):
        waits.setdefault(shard, (place[0], place[1]))

    def is_free(priority: int, is_unread: int, position: int) -> bool:
        shard = transaction.value("shard_at", {"position": position})
        if shard not in waits:
            return True
        if is_unread:
            return priority <= waits[shard][0] and position < waits[shard][1]
        return (priority, position) < waits[shard]

    return [one for one in candidates if is_free(*one)]


def browse(
    transaction: Transaction, name: str, after: int, upto: int | None, limit: int, backwards: bool
) -> list[Message]:
    queue = queues.find(transaction, name)
    if queue is None:
        return []
    messages = [
        _message(transaction, queue, row)
        for first, last in ranges.browsed(transaction, queue, after, upto, limit, backwards)
        for row in transaction.rows("messages_between", {"first": first, "last": last})
    ]
    return messages[::-1] if backwards else messages


def ready_in(transaction: Transaction, name: str, group_name: str | None) -> float | None:
    queue = queues.find(transaction, name)
    if queue is None or queue.policy.paused:
        return None
    group = queues.find_group(transaction, queue, group_name or queue.policy.default_group)
    group_id = queues.NO_GROUP if group is None else group.group_id
    bindings = {"queue_id": queue.queue_id, "group_id": group_id}
    ready = "any_ready_in_order" if queue.policy.ordered else "any_ready"
    if transaction.value(ready, {**bindings, "trimmed_position": queue.trimmed_position}):
        return 0
    due_at = transaction.value("next_due", bindings)
    return None if due_at is None else max(0.0, (due_at - transaction.now) / 1_000_000)


def history(transaction: Transaction, name: str, message_id: str) -> list[AuditEntry]:
    queue = queues.get(transaction, name)
    found = place(transaction, queue, message_id)
    message = find(transaction, name, message_id)
    if found.position is None:
        return [_sent(message, State.HELD)]
    return [
        _sent(message, _first_state(transaction, found.position)),
        *audit.entries(transaction, queue, found.position),
    ]


def _first_state(transaction: Transaction, position: int) -> State:
    return State.HELD if transaction.value("was_held", {"position": position}) else State.READY


def _sent(message: Message, state: State) -> AuditEntry:
    return AuditEntry(message.created_at, Event.SEND, state, message.created_by, None, None, 0)


def states(transaction: Transaction, name: str, group_name: str, ids: Sequence[str]) -> list[MessageState | None]:
    queue = queues.get(transaction, name)
    group = queues.find_group(transaction, queue, group_name)
    group_id = queues.NO_GROUP if group is None else group.group_id
    return [_state(transaction, queue, group_id, log.locate(transaction, queue, one)) for one in ids]


def _state(transaction: Transaction, queue: StoredQueue, group_id: int, found: Location | None) -> MessageState | None:
    if found is None:
        return None
    if found.position is None:
        return MessageState(State.HELD, None)
    bindings = {"position": found.position, "queue_id": queue.queue_id, "group_id": group_id}
    last = transaction.row("last_state", {**bindings, "span": audit.MAX_SPAN - 1})
    if last is not None:
        return MessageState(State(last[0]), last[1])
    return MessageState(_first_state(transaction, found.position), None)


def archive(
    transaction: Transaction, name: str, group_name: str, outcome: State | None, limit: int, before: int | None
) -> list[Archived]:
    queue = queues.find(transaction, name)
    group = None if queue is None else queues.find_group(transaction, queue, group_name)
    if queue is None or group is None:
        return []
    archived: list[Archived] = []
    edge = transaction.value("archive_edge", {"queue_id": queue.queue_id, "group_id": group.group_id})
    edge = edge if before is None else min(edge, before)
    while len(archived) < limit:
        positions = _behind(transaction, queue, group, edge, limit)
        if not positions:
            break
        for position in positions:
            ended = _archived(transaction, queue, group, position)
            if ended is not None and (outcome is None or ended.outcome is outcome):
                archived.append(ended)
        edge = positions[-1]
    return archived[:limit]


def _behind(transaction: Transaction, queue: StoredQueue, group: Group, before: int, limit: int) -> list[int]:
    bindings = {
        "queue_id": queue.queue_id,
        "group_id": group.group_id,
        "trimmed_position": queue.trimmed_position,
        "before": before,
        "limit": limit,
    }
    reaches = transaction.rows("read_lanes", bindings)
    passed = ranges.last_positions(transaction, reaches, queue.trimmed_position, limit)
    skipped = [position for (position,) in transaction.rows("skipped_before", bindings)]
    found = sorted({*passed, *skipped}, reverse=True)[:limit]
    return found or [position for (position,) in transaction.rows("kept_letters", bindings)]


def _archived(transaction: Transaction, queue: StoredQueue, group: Group, position: int) -> Archived | None:
    last = audit.last_entry(transaction, queue, group, position)
    if last is None or last.state not in OUTCOMES:
        return None
    message = message_at(transaction, queue, position)
    return Archived(message, group.name, last.state, last.reason, last.attempt, last.at)
