"""Which positions of the log belong to a queue, without reading the log: the runs of its lanes know.

The log holds all queues, so what lies between two messages of a small queue may be millions of another.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.engines.sqlite.queues import Queue
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/stretches.sql")
END = (1 << 63) - 1
# A lane, and up to where it may be read.
Reach = tuple[int, int]


def first_positions(transaction: Transaction, queue: Queue, after: int, upto: int, limit: int) -> list[int]:
    """The first `limit` positions of the queue with after < position <= upto, in order."""
    lanes = transaction.rows(SQL.readable_lanes, {"queue_id": queue.queue_id})
    found: list[int] = []
    for (lane_id,) in lanes:
        reading = {"lane_id": lane_id, "after": after, "upto": upto, "limit": limit}
        found += _taken(transaction.rows(SQL.runs_after, reading), after, upto, limit, backwards=False)
    return sorted(found)[:limit]


def last_positions(transaction: Transaction, reaches: Iterable[Reach], after: int, limit: int) -> list[int]:
    """The last `limit` positions of some lanes, each up to its reach, the last one first."""
    found: list[int] = []
    for lane_id, upto in reaches:
        reading = {"lane_id": lane_id, "after": after, "upto": upto, "limit": limit}
        runs = [*transaction.rows(SQL.run_over, reading), *transaction.rows(SQL.runs_before, reading)]
        found += _taken(runs, after, upto, limit, backwards=True)
    return sorted(found, reverse=True)[:limit]


def whole_lanes(transaction: Transaction, queue: Queue, upto: int) -> Iterator[Reach]:
    for (lane_id,) in transaction.rows(SQL.readable_lanes, {"queue_id": queue.queue_id}):
        yield lane_id, upto


def _taken(runs: Iterable[tuple[int, int]], after: int, upto: int, limit: int, *, backwards: bool) -> list[int]:
    """The positions of runs that come in the order wanted, until there are enough."""
    taken: list[int] = []
    for first, last in runs:
        if len(taken) >= limit:
            break
        stretch = range(max(first, after + 1), min(last, upto) + 1)
        taken += (stretch[::-1] if backwards else stretch)[: limit - len(taken)]
    return taken
