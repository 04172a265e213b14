"""The plan of a sweep: queues in which something is due, and queues that have changed.

A store may have thousands of queues of which few are in use. A query over small tables finds these, so that a sweep of
an idle store costs little and commits nothing. Every queue is swept now and then anyway, for what only the passing of
time brings about.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from penstock.domain.timestamps import SECOND, microseconds
from penstock.engines.positional import queues
from penstock.engines.positional.database import Transaction

# A queue in which nothing is due is swept again after this long, but only a few of them per pass. Queues that this
# process has never swept are new to it.
LONGEST_REST = 60 * SECOND
MOST_RESTED = 5
MOST_NEW = 50


class Visit(NamedTuple):
    """The state of a queue when it was last swept, and when that was."""

    looks: tuple[Any, ...]
    at: int


class SweepPlan:
    """The last visits, of one engine."""

    def __init__(self) -> None:
        self._visits: dict[int, Visit] = {}

    def to_visit(self, transaction: Transaction) -> list[tuple[int, str]]:
        """The id and name of each queue that needs a sweep."""
        now = transaction.now
        restless = {queue_id for (queue_id,) in transaction.rows("expiring_queues", {"now": now})}
        groups = self._groups(transaction)
        wanted: list[tuple[int, str]] = []
        rested: list[tuple[int, int, str]] = []
        new: list[tuple[int, str]] = []
        for row in transaction.rows("queues_to_sweep"):
            queue, marked_at = queues.from_row(row[:-1]), row[-1]
            own = groups.get(queue.queue_id, [])
            last = self._visits.get(queue.queue_id)
            is_changed = last is not None and last.looks != _looks(queue, own)
            if is_changed or queue.queue_id in restless or _is_due(queue, own, marked_at, now):
                wanted.append((queue.queue_id, queue.name))
            elif last is None:
                new.append((queue.queue_id, queue.name))
            elif not 0 <= now - last.at < LONGEST_REST:
                rested.append((last.at, queue.queue_id, queue.name))
        return wanted + new[:MOST_NEW] + [(queue_id, name) for _, queue_id, name in sorted(rested)[:MOST_RESTED]]

    def visited(self, transaction: Transaction, queue_ids: Collection[int]) -> None:
        """Record the state of queues that were just swept."""
        groups = self._groups(transaction)
        for row in transaction.rows("queues_to_sweep"):
            if row[0] in queue_ids:
                looks = _looks(queues.from_row(row[:-1]), groups.get(row[0], []))
                self._visits[row[0]] = Visit(looks, transaction.now)

    def _groups(self, transaction: Transaction) -> dict[int, list[tuple[Any, ...]]]:
        groups: dict[int, list[tuple[Any, ...]]] = {}
        for queue_id, *group in transaction.rows("groups_to_sweep"):
            groups.setdefault(queue_id, []).append(tuple(group))
        return groups


class Calls(NamedTuple):
    """The groups with consumers that missed their heartbeats, each with its queue, and the schedules that are due."""

    groups: list[tuple[int, str]]
    schedules: list[str]


def calls(transaction: Transaction) -> Calls:
    now = {"now": transaction.now}
    missing = transaction.rows("missing_consumers", {**now, "group_id": None})
    groups = dict.fromkeys((group_id, queue) for group_id, _, queue, _ in missing)
    return Calls(list(groups), [row[0] for row in transaction.rows("due_schedules", now)])


def _looks(queue: queues.StoredQueue, groups: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return queue.created_at, queue.policy, queue.trimmed_position, sorted(group[:3] for group in groups)


def _is_due(queue: queues.StoredQueue, groups: list[tuple[Any, ...]], marked_at: int | None, now: int) -> bool:
    if queue.held or (marked_at is not None and marked_at <= now - microseconds(queue.policy.history_seconds)):
        return True
    dead_before = now - microseconds(queue.policy.dead_letter_seconds)
    return any(
        tracked or (ends_at is not None and ends_at <= now) or (died_at is not None and died_at <= dead_before)
        for _, _, _, tracked, ends_at, died_at in groups
    )
