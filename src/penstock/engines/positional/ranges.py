"""Ranges of positions: those of a queue, from the runs of its lanes, without reading the log.

The log holds all queues: between two messages of a small queue there may be millions of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import StoredQueue

END = (1 << 63) - 1
# A lane, and the position up to which it may be read.
Reach = tuple[int, int]


def browsed(
    transaction: Transaction, queue: StoredQueue, after: int, upto: int | None, limit: int, backwards: bool
) -> Iterator[tuple[int, int]]:
    """The first `limit` positions between two, or the last, as ascending ranges."""
    after, upto = max(after, queue.trimmed_position), END if upto is None else upto
    if not backwards:
        return contiguous_ranges(first_positions(transaction, queue, after, upto, limit))
    lanes = transaction.rows("readable_lanes", {"queue_id": queue.queue_id})
    reaches = [(lane_id, upto) for (lane_id,) in lanes]
    return contiguous_ranges(last_positions(transaction, reaches, after, limit)[::-1])


def first_positions(transaction: Transaction, queue: StoredQueue, after: int, upto: int, limit: int) -> list[int]:
    """The first `limit` positions of the queue with after < position <= upto, in order."""
    lanes = transaction.rows("readable_lanes", {"queue_id": queue.queue_id})
    found: list[int] = []
    for (lane_id,) in lanes:
        reading = {"lane_id": lane_id, "after": after, "upto": upto, "limit": limit}
        found += _taken(transaction.rows("runs_after", reading), after, upto, limit, backwards=False)
    return sorted(found)[:limit]


def last_positions(transaction: Transaction, reaches: Iterable[Reach], after: int, limit: int) -> list[int]:
    """The last `limit` positions of some lanes, each up to its own limit, last one first."""
    found: list[int] = []
    for lane_id, upto in reaches:
        reading = {"lane_id": lane_id, "after": after, "upto": upto, "limit": limit}
        runs = [*transaction.rows("run_over", reading), *transaction.rows("runs_before", reading)]
        found += _taken(runs, after, upto, limit, backwards=True)
    return sorted(found, reverse=True)[:limit]


def _taken(runs: Iterable[tuple[int, int]], after: int, upto: int, limit: int, *, backwards: bool) -> list[int]:
    """The first `limit` positions of runs that are given in the order wanted."""
    taken: list[int] = []
    for first, last in runs:
        if len(taken) >= limit:
            break
        positions = range(max(first, after + 1), min(last, upto) + 1)
        taken += (positions[::-1] if backwards else positions)[: limit - len(taken)]
    return taken


def contiguous_ranges(positions: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending positions as ranges: 3 4 5 9 -> (3, 5) (9, 9)."""
    first = last = None
    for position in positions:
        if last is not None and position == last + 1:
            last = position
            continue
        if first is not None and last is not None:
            yield first, last
        first = last = position
    if first is not None and last is not None:
        yield first, last
