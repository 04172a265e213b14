"""Sizes of messages without reading their payloads, for callers that limit replies by bytes."""

from __future__ import annotations

import bisect
import itertools

from penstock.engines.positional import queues, ranges
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import StoredQueue


def fitting(transaction: Transaction, name: str, group_name: str | None, limit: int, size: int) -> int:
    queue = queues.find(transaction, name)
    if queue is None:
        return limit
    group = queues.find_group(transaction, queue, group_name or queue.policy.default_group)
    group_id = queues.NO_GROUP if group is None else group.group_id
    sizes = _sizes(transaction, queue, group_id, limit)
    if sum(sizes) <= size:
        return limit
    totals = itertools.accumulate(sizes)
    return max(1, bisect.bisect_right(list(totals), size))


def _sizes(transaction: Transaction, queue: StoredQueue, group_id: int, limit: int) -> list[int]:
    """Of the next messages of the group, at most `limit`."""
    common = {"group_id": group_id, "queue_id": queue.queue_id, "now": transaction.now, "limit": limit}
    sizes = [one for (one,) in transaction.rows("sizes_of_retries", common)]
    unread = (queue.queue_id, group_id, queue.trimmed_position)
    for lane_id, _, _, _, _, after, *_ in transaction.rows("unread_lanes", unread):
        if len(sizes) >= limit:
            break
        reading = {"lane_id": lane_id, "after": after, "limit": limit - len(sizes)}
        sizes += [one for (one,) in transaction.rows("sizes_of_lane", reading)]
    return sizes


def places(
    transaction: Transaction, name: str, after: int, upto: int | None, limit: int, backwards: bool
) -> list[tuple[int, int, int]]:
    queue = queues.find(transaction, name)
    if queue is None:
        return []
    found = [
        (position, created_at, size)
        for first, last in ranges.browsed(transaction, queue, after, upto, limit, backwards)
        for position, created_at, size in transaction.rows(
            "places", {"first": first, "last": last, "now": transaction.now}
        )
    ]
    return found[::-1] if backwards else found
