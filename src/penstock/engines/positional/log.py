"""The log: positions, the lanes they belong to, and where a message is.

The log of the store holds the messages of all queues in commit order. A lane is a queue, priority and shard; its runs
are the ranges of consecutive positions that belong to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.domain.identity import made_id, position_of
from penstock.domain.policy import Policy
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import StoredQueue

# Messages that ended while held are stored in lanes with priority -1 - priority, which no group reads.
WITHDRAWN = -1


class Record(NamedTuple):
    """A message as stored."""

    created_at: int
    id: str | None
    content_type: str | None
    headers: str | None
    expires_at: int | None
    deadline_at: int | None
    address: str | None
    key: str | None
    batch_id: int | None
    created_by: str | None
    available_at: int | None
    payload: bytes


def append(transaction: Transaction, queue_id: int, priority: int, shard: int, records: Sequence[Record]) -> int:
    """Append records at consecutive positions; return the first."""
    lane_id = find_lane(transaction, queue_id, priority, shard)
    first, last = take_positions(transaction, queue_id, len(records))
    rows = [(position, lane_id, *record) for position, record in enumerate(records, first)]
    transaction.run_many("append_message", rows)
    needs_checks = any(
        record.expires_at or record.deadline_at or record.batch_id or record.address is not None for record in records
    )
    add_run(transaction, lane_id, first, last, needs_checks)
    return first


def take_positions(transaction: Transaction, queue_id: int, count: int) -> tuple[int, int]:
    first = transaction.take_positions(queue_id, count)
    return first, first + count - 1


def find_lane(transaction: Transaction, queue_id: int, priority: int, shard: int) -> int:
    bindings = {"queue_id": queue_id, "priority": priority, "shard": shard}
    lane_id: int | None = transaction.value("find_lane", bindings)
    return transaction.value("make_lane", bindings) if lane_id is None else lane_id


def add_run(transaction: Transaction, lane_id: int, first: int, last: int, needs_checks: bool) -> None:
    transaction.add_run(lane_id, first, last)
    if needs_checks:
        transaction.run("mark_lane_checked", {"lane_id": lane_id})


def identify(transaction: Transaction, queue_id: int, positions: Iterable[tuple[str, int]]) -> None:
    """Record the positions of messages whose ids do not follow from them."""
    rows = [(queue_id, message_id, position) for message_id, position in positions]
    if rows:
        transaction.run_many("put_identity", rows)


class Location(NamedTuple):
    """Where a message is stored: at a position of the log, or held."""

    position: int | None
    held_id: int | None


def locate(transaction: Transaction, queue: StoredQueue, message_id: str) -> Location | None:
    position = position_of(message_id)
    created_at = transaction.value("find_made_id", {"position": position, "queue_id": queue.queue_id})
    if created_at is not None and made_id(created_at, transaction.salt, position) == message_id:
        return Location(position, None)
    row = transaction.row("find_identity", {"queue_id": queue.queue_id, "id": message_id})
    return None if row is None else Location(*row)


def existing(transaction: Transaction, queue: StoredQueue, ids: Sequence[str]) -> set[str]:
    """Which of these ids the queue has."""
    meant = {position_of(message_id): message_id for message_id in ids}
    made = transaction.rows_of("find_made_ids", list(meant), {"queue_id": queue.queue_id})
    found = {meant[at] for at, created_at in made if made_id(created_at, transaction.salt, at) == meant[at]}
    chosen = transaction.rows_of("find_identities", list(ids), {"queue_id": queue.queue_id})
    return found.union(message_id for (message_id,) in chosen)


def any_shard(transaction: Transaction, policy: Policy) -> int:
    """The first shard for messages without a key: a random one; in an ordered queue, where they count as one key, its
    own."""
    if policy.shards == 1 or policy.ordered:
        return policy.shard_of(None)
    return int(transaction.random() * policy.shards)
