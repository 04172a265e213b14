"""The facts that explain why a message is not running."""

from __future__ import annotations

from penstock.domain.explain import Situation
from penstock.domain.lifecycle import OUTCOMES, State
from penstock.engines.positional import audit, counts, inspection, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def situation(transaction: Transaction, name: str, message_id: str, group_name: str) -> Situation:
    queue = queues.get(transaction, name)
    now = transaction.now
    found = inspection.place(transaction, queue, message_id)
    if found.position is None:
        available_at, waiting, _, _, _, batch = transaction.rows("held_state", {"held_id": found.held_id})[0]
        return Situation(now=now, state=State.HELD, until_at=available_at, batch=batch if waiting else None)
    group = queues.find_group(transaction, queue, group_name)
    if group is None or group.stream_position is not None:
        return Situation(now=now, has_group=group is not None, is_stream=group is not None)
    at = {"group_id": group.group_id, "position": found.position}
    last = audit.last_entry(transaction, queue, group, found.position)
    if last is not None and last.state in OUTCOMES:
        is_dead_letter = transaction.row("dead_letter_at", at) is not None
        return Situation(now=now, state=last.state, reason=last.reason, is_dead_letter=is_dead_letter)
    tracked = transaction.row("find_tracked", at)
    if tracked is not None:
        _, _, _, state, attempt, until_at, _, _, _, _, consumer, reason = tracked
        if state == State.READY:
            return _ready(transaction, queue, group, found.position, attempt, reason)
        return Situation(
            now=now, state=State(state), attempt=attempt, until_at=until_at, consumer=consumer, reason=reason
        )
    lease = transaction.row("lease_holder", at)
    if lease is not None:
        return Situation(now=now, state=State.LEASED, attempt=1, consumer=lease[1], until_at=lease[2])
    return _ready(transaction, queue, group, found.position)


def _ready(
    transaction: Transaction,
    queue: StoredQueue,
    group: Group,
    position: int,
    attempt: int | None = None,
    reason: str | None = None,
) -> Situation:
    at = {"group_id": group.group_id, "position": position, "trimmed_position": queue.trimmed_position}
    stats = counts.stats(transaction, queue.name)[group.name]
    blocked = queue.policy.ordered and transaction.rows("blocked_shards", {"group_id": group.group_id})
    return Situation(
        now=transaction.now,
        position=position,
        attempt=attempt,
        reason=reason,
        is_passed=attempt is None and position <= transaction.rows("cursor_of", at)[0][0],
        is_blocked=bool(blocked),
        is_paused=queue.policy.paused,
        lag=stats.lag,
        consumers=stats.consumers,
    )
