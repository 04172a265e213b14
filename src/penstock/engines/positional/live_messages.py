"""Pages of live messages by state and of batch members, by index and without payloads."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.domain.identity import made_id
from penstock.domain.lifecycle import State
from penstock.domain.results import MessagePage, MessageState, MessageSummary
from penstock.domain.timestamps import to_time
from penstock.engines.pages import Found, Place, leased_page, members_with_states, page_of, place_of
from penstock.engines.positional import batches, inspection, leases, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import StoredQueue

LAST = 2**62
RETRY, UNREAD = 0, 1
DELAYED, BACKING_OFF, IN_BATCH = 0, 1, 2


def live(
    transaction: Transaction, name: str, group_name: str, state: State, limit: int, after: str | None
) -> MessagePage:
    queue = queues.get(transaction, name)
    group = queues.find_group(transaction, queue, group_name)
    group_id = queues.NO_GROUP if group is None else group.group_id
    if state is State.LEASED:
        return _leased(transaction, name, group_name, limit, after)
    # One more than asked for, to know whether there is another page.
    list_them = _ready if state is State.READY else _held
    start = (0, RETRY, 0) if state is State.READY else (DELAYED, 0, 0, 0)
    return page_of(list_them(transaction, queue, group_id, place_of(after, start), limit + 1), limit)


def _leased(transaction: Transaction, name: str, group_name: str, limit: int, after: str | None) -> MessagePage:
    (position,) = place_of(after, (0,))
    return leased_page(leases.every(transaction, name, group_name, None, position, limit + 1), limit)


def _ready(transaction: Transaction, queue: StoredQueue, group_id: int, after: Place, limit: int) -> Iterator[Found]:
    """Best priority first, due retries before unread messages, each by position."""
    priority, kind, position = after
    bindings = {"group_id": group_id, "priority": priority, "limit": limit}
    bindings["position"] = position if kind == RETRY else LAST
    for best, place, created_at, chosen, attempt, reason in transaction.rows("ready_retries", bindings):
        yield (best, RETRY, place), _summary(transaction, State.READY, place, created_at, chosen, attempt, reason)
    found = reached = 0
    for lane_id, own, _, _, _, cursor, *_ in transaction.rows(
        "unread_lanes", (queue.queue_id, group_id, queue.trimmed_position)
    ):
        if own < priority or (own > reached and found >= limit):
            continue
        reached = own
        begin = max(cursor, position) if own == priority and kind == UNREAD else cursor
        reading = {"group_id": group_id, "lane_id": lane_id, "after": begin, "now": transaction.now, "limit": limit}
        reading["at_most_once"] = int(queue.policy.at_most_once)
        for place, created_at, chosen in transaction.rows("ready_lane", reading):
            found += 1
            yield (own, UNREAD, place), _summary(transaction, State.READY, place, created_at, chosen, 0)


def _held(transaction: Transaction, queue: StoredQueue, group_id: int, after: Place, limit: int) -> Iterator[Found]:
    """Delayed messages and retries by due time, then messages of batches that have not started, batch by batch."""
    phase, due_at, kind, number = after
    if phase == DELAYED:
        yield from _due(transaction, queue, group_id, (due_at, kind, number), limit)
    batch_id, last = (due_at, number) if phase == IN_BATCH else (0, 0)
    found = 0
    for one, name in transaction.rows("unstarted_batches", {"queue_id": queue.queue_id, "batch_id": batch_id}):
        if found >= limit:
            break
        bindings = {"batch_id": one, "queue_id": queue.queue_id, "limit": limit}
        bindings["number"] = last if one == batch_id else 0
        for held_id, created_at, message_id in transaction.rows("held_by_batch", bindings):
            found += 1
            summary = MessageSummary(message_id, State.HELD, None, to_time(created_at), 0, batch=name)
            yield (IN_BATCH, one, 0, held_id), summary


def _due(transaction: Transaction, queue: StoredQueue, group_id: int, after: Place, limit: int) -> Iterator[Found]:
    due_at, kind, number = after
    bindings = {"queue_id": queue.queue_id, "group_id": group_id, "due_at": due_at, "limit": limit}
    delayed = {**bindings, "number": number if kind == DELAYED else LAST}
    for at, held_id, created_at, message_id, batch in transaction.rows("delayed_messages", delayed):
        summary = MessageSummary(message_id, State.HELD, None, to_time(created_at), 0, due_at=to_time(at), batch=batch)
        yield (DELAYED, at, DELAYED, held_id), summary
    retries = {**bindings, "number": number if kind == BACKING_OFF else 0}
    for at, position, created_at, chosen, attempt, reason in transaction.rows("delayed_retries", retries):
        summary = _summary(transaction, State.HELD, position, created_at, chosen, attempt, reason, at)
        yield (DELAYED, at, BACKING_OFF, position), summary


def _summary(
    transaction: Transaction,
    state: State,
    position: int,
    created_at: int,
    chosen: str | None,
    attempt: int | None,
    reason: str | None = None,
    due_at: int | None = None,
) -> MessageSummary:
    return MessageSummary(
        chosen or made_id(created_at, transaction.salt, position),
        state,
        position,
        to_time(created_at),
        attempt,
        due_at=None if due_at is None else to_time(due_at),
        reason=reason,
    )


def members(
    transaction: Transaction, name: str, batch_name: str, number: int | None, limit: int, after: str | None
) -> MessagePage:
    queue = queues.get(transaction, name)
    batch = batches.get(transaction, queue, batch_name, number)
    page = page_of(_members(transaction, batch.batch_id, place_of(after, (0, 0)), limit + 1), limit)

    def states(member_queue: str, ids: list[str]) -> list[MessageState | None]:
        group = queues.get(transaction, member_queue).policy.default_group
        return inspection.states(transaction, member_queue, group, ids)

    return members_with_states(page, states)


def _members(transaction: Transaction, batch_id: int, after: Place, limit: int) -> Iterator[Found]:
    """Members in the log by position, then held ones."""
    held, number = after
    if not held:
        bindings = {"batch_id": batch_id, "number": number, "limit": limit}
        for position, created_at, chosen, queue in transaction.rows("members_in_log", bindings):
            summary = _summary(transaction, State.READY, position, created_at, chosen, None)
            yield (0, position), msgspec.structs.replace(summary, queue=queue)
    bindings = {"batch_id": batch_id, "number": number if held else 0, "limit": limit}
    for held_id, created_at, message_id, queue in transaction.rows("members_held", bindings):
        yield (1, held_id), MessageSummary(message_id, State.HELD, None, to_time(created_at), None, queue=queue)
