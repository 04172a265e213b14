"""Previews: what a seek or a shorter retention would do to messages."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain.policy import Policy
from penstock.domain.results import RetentionPreview, SeekPreview
from penstock.domain.timestamps import microseconds
from penstock.engines.positional import counts, cursors, queues, retention
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def of_seek(transaction: Transaction, name: str, group_name: str, target: int | str, is_time: bool) -> SeekPreview:
    queue = queues.get(transaction, name)
    group = queues.find_group(transaction, queue, group_name)
    cursors.check_place(queue, group)
    position = cursors.place_of(transaction, queue, target, is_time)
    if group is not None and group.stream_position is not None:
        return _seek_stream(transaction, queue, group.stream_position, position)
    group_id = queues.NO_GROUP if group is None else group.group_id
    bindings = {"queue_id": queue.queue_id, "group_id": group_id, "trimmed_position": queue.trimmed_position}
    passed = again = 0
    for lane_id, _, reached, _ in transaction.rows("group_lanes", bindings):
        first, last = sorted((reached, position))
        between = {"lane_id": lane_id, "after": first, "upto": last}
        count = transaction.value("count_lane_messages", between)
        if position > reached:
            passed += count - transaction.value("count_skipped", {**between, "group_id": group_id})
        else:
            again += count - transaction.value("count_live", {**between, "group_id": group_id})
        ahead = {"lane_id": lane_id, "after": last, "upto": cursors.FURTHEST, "group_id": group_id}
        again += transaction.value("count_skipped", ahead) - transaction.value("count_live", ahead)
    return SeekPreview(position, passed, again)


def _seek_stream(transaction: Transaction, queue: StoredQueue, reached: int, position: int) -> SeekPreview:
    def beyond(place: int) -> int:
        count: int = transaction.value("count_sent", {"queue_id": queue.queue_id, "after": place})
        return count

    moved = beyond(reached) - beyond(position)
    return SeekPreview(position, max(0, moved), max(0, -moved))


def of_retention(transaction: Transaction, name: str, changes: dict[str, Any]) -> RetentionPreview:
    queue = queues.get(transaction, name)
    policy = msgspec.structs.replace(queue.policy, **changes)
    messages = letters = 0
    if _trims_sooner(queue.policy, policy):
        messages = _finished(transaction, queue._replace(policy=policy))
    if policy.dead_letter_seconds < queue.policy.dead_letter_seconds:
        before = transaction.now - microseconds(policy.dead_letter_seconds)
        letters = sum(_letters(transaction, group, before) for group in queues.groups(transaction, queue))
    return RetentionPreview(messages, letters)


def _trims_sooner(before: Policy, after: Policy) -> bool:
    return after.history_seconds < before.history_seconds or after.group_idle_seconds < before.group_idle_seconds


def _finished(transaction: Transaction, queue: StoredQueue) -> int:
    """Readable messages that every active group has finished, except those that a dead letter keeps. Computed from
    counts, so with several groups it is that of the slowest. Without a primary group a message is finished when it
    expires."""
    ((readable, every),) = transaction.rows("count_readable", {"queue_id": queue.queue_id})
    stats = counts.stats(transaction, queue.name)
    finished: list[int] = []
    for group in retention.active(transaction, queue):
        one = stats[group.name]
        live = one.available + one.redo + one.in_progress + one.held - queue.held
        kept = {"group_id": group.group_id, "after": queue.trimmed_position}
        finished.append(every - live - transaction.value("count_kept", kept))
    if queue.policy.primary_group is None or not finished:
        finished.append(readable - counts.unread(transaction, queue.name))
    return max(0, min(finished))


def _letters(transaction: Transaction, group: Group, before: int) -> int:
    count: int = transaction.value("count_old_dead_letters", {"group_id": group.group_id, "before": before})
    return count
