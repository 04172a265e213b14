"""How large messages are, without reading them: for those who hand them on in pieces."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.engines.sqlite import queues, stretches
from penstock.engines.sqlite.queues import Queue
from penstock.engines.sqlite.ranges import ranges
from penstock.engines.sqlite.receiving import SQL as RECEIVE
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/sizes.sql")
# A group that has not begun.
NOBODY = -1


def fitting(transaction: Transaction, name: str, group_name: str | None, limit: int, size: int) -> int:
    queue = queues.find(transaction, name)
    if queue is None:
        return limit
    group = queues.find_group(transaction, queue, group_name or queue.policy.default_group)
    group_id = NOBODY if group is None else group.group_id
    total = 0
    for count, one in enumerate(_sizes(transaction, queue, group_id, limit)):
        total += one
        if total > size or count == limit:
            return min(max(1, count), limit)
    return limit


def _sizes(transaction: Transaction, queue: Queue, group_id: int, limit: int) -> Iterator[int]:
    common = {"group_id": group_id, "queue_id": queue.queue_id, "now": transaction.now, "limit": limit}
    yield from (one for (one,) in transaction.rows(SQL.size_waiting, common))
    unread = (queue.queue_id, group_id, queue.trimmed_position)
    for lane_id, _, _, _, _, after, *_ in transaction.rows(RECEIVE.unread_lanes, unread):
        reading = {"lane_id": lane_id, "after": after, "limit": limit}
        yield from (one for (one,) in transaction.rows(SQL.size_lane, reading))


def places(
    transaction: Transaction, name: str, after: int, upto: int | None, limit: int, backwards: bool
) -> list[tuple[int, int, int]]:
    queue = queues.find(transaction, name)
    if queue is None:
        return []
    after, upto = max(after, queue.trimmed_position), stretches.END if upto is None else upto
    if backwards:
        reaches = stretches.whole_lanes(transaction, queue, upto)
        positions = stretches.last_positions(transaction, reaches, after, limit)[::-1]
    else:
        positions = stretches.first_positions(transaction, queue, after, upto, limit)
    found = [
        (position, created_at, size)
        for first, last in ranges(positions)
        for position, created_at, size in transaction.rows(
            SQL.places, {"first": first, "last": last, "now": transaction.now}
        )
    ]
    return found[::-1] if backwards else found
