"""leased -> ready or an outcome when a lease ends; held or ready -> expired for retries."""

from __future__ import annotations

from penstock.domain import reasons
from penstock.domain.lifecycle import Event, State
from penstock.engines.positional import audit, leases, outcomes, settlements
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.leases import Flight, LeaseRange
from penstock.engines.positional.queues import Group, StoredQueue


def reclaim(transaction: Transaction, queue: StoredQueue, group: Group, consumer: str | None = None) -> int:
    """End lapsed leases of the group, and with `consumer` all leases of that consumer."""
    bindings = {"group_id": group.group_id, "now": transaction.now, "consumer": consumer}
    lapsed: list[Flight] = []
    for row in transaction.rows("lapsed_leases", bindings):
        lease = LeaseRange(*row)
        lapsed += leases.flights(transaction, lease, lease.first, lease.last)
        leases.drop(transaction, lease)
    transaction.run("update_next_lease_end", {"group_id": group.group_id, "now": transaction.now})
    for *fields, reason in transaction.rows("lapsed_tracked", bindings):
        position, lane_id, priority, attempt, expires_at, deadline_at, batch_id, cancelled, token, holder = fields
        leases.forget(transaction, group, position)
        lapsed.append(
            Flight(
                position, lane_id, priority, attempt, expires_at, deadline_at, batch_id, bool(cancelled), token, holder,
                None, reason,
            )
        )  # fmt: skip
    # At most once: how far the consumer got is unknown, so none may be delivered again.
    released = queue.policy.ordered and not queue.policy.at_most_once
    heads = _heads(transaction, queue, lapsed) if released else None
    for flight in sorted(lapsed):
        # In an ordered queue the consumer was processing the first message of its lease; the others did not fail.
        event = Event.LEASE_END if heads is None or flight.position in heads else Event.RELEASE
        reason = reasons.CONSUMER_GONE.format(consumer) if flight.consumer == consumer else None
        # Every lease is dropped before any message is settled: an ordered queue must not release what has lapsed.
        settlements.conclude(transaction, queue, group, flight._replace(lease=None), event, reason)
    return len(lapsed)


def _heads(transaction: Transaction, queue: StoredQueue, lapsed: list[Flight]) -> set[int]:
    """The position of what each lease handed out first in each shard."""
    shards: dict[int, int] = dict(transaction.rows("lane_shards", {"queue_id": queue.queue_id}))
    heads: dict[tuple[int, int], int] = {}
    for flight in sorted(lapsed, key=lambda one: (one.priority, one.position)):
        heads.setdefault((flight.token, shards[flight.lane_id]), flight.position)
    return set(heads.values())


def expire_tracked(transaction: Transaction, queue: StoredQueue, group: Group) -> int:
    """End retries of the group that expired before they were delivered again."""
    at_most_once = int(queue.policy.at_most_once)
    bindings = {"group_id": group.group_id, "now": transaction.now, "at_most_once": at_most_once}
    expired = transaction.rows("expired_tracked", bindings)
    for position, attempt, name in expired:
        event = Event(name)
        leases.forget(transaction, group, position)
        step = audit.AuditStep(event, State.EXPIRED, position, position, "system", reasons.OF_EVENT[event], attempt)
        outcomes.end(transaction, queue, group, step)
    return len(expired)
