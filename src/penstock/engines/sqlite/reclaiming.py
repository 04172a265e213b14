"""leased -> ready or an outcome, because the lease has ended; held or ready -> expired, because time has passed."""

from __future__ import annotations

from penstock.domain.lifecycle import Event, State
from penstock.engines.sqlite import ending, settling, tracking
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.tracking import Flight, Lease
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/reclaim.sql")


def reclaim(transaction: Transaction, queue: Queue, group: Group, consumer: str | None = None) -> int:
    """End lapsed leases of the group; with `consumer`, also all that this consumer holds."""
    bindings = {"group_id": group.group_id, "now": transaction.now, "consumer": consumer}
    lapsed: list[Flight] = []
    for row in transaction.rows(SQL.lapsed_leases, bindings):
        lease = Lease(*row)
        lapsed += tracking.flights(transaction, lease, lease.first, lease.last)
        tracking.drop(transaction, lease)
    transaction.run(SQL.look_ahead, {"group_id": group.group_id, "now": transaction.now})
    for *fields, reason in transaction.rows(SQL.lapsed_tracked, bindings):
        position, lane_id, priority, attempt, expires_at, deadline_at, batch_id, cancelled, token, holder = fields
        tracking.forget(transaction, group, position)
        lapsed.append(
            Flight(
                position, lane_id, priority, attempt, expires_at, deadline_at, batch_id, bool(cancelled), token, holder,
                None, reason,
            )
        )  # fmt: skip
    # At most once, nobody knows how far the consumer got: none may be handed out again.
    released = queue.policy.ordered and not queue.policy.at_most_once
    heads = _heads(transaction, queue, lapsed) if released else None
    for flight in sorted(lapsed):
        # In order, a consumer was at work on the first message of its lease: the others did not fail with it.
        event = Event.LEASE_END if heads is None or flight.position in heads else Event.RELEASE
        reason = f"consumer {consumer} is gone" if flight.consumer == consumer else None
        # All are taken out of their leases before any is concluded: an ordered queue must not release what lapsed too.
        settling.conclude(transaction, queue, group, flight._replace(lease=None), event, reason)
    return len(lapsed)


def _heads(transaction: Transaction, queue: Queue, lapsed: list[Flight]) -> set[int]:
    """The first position of each lease in each shard."""
    shards = dict(transaction.rows(SQL.shards, {"queue_id": queue.queue_id}))
    heads: dict[tuple[int, int], int] = {}
    for flight in sorted(lapsed):
        heads.setdefault((flight.token, shards[flight.lane_id]), flight.position)
    return set(heads.values())


def expire_tracked(transaction: Transaction, queue: Queue, group: Group) -> int:
    """Retries of the group that are over before they were handed out again."""
    at_most_once = int(queue.policy.at_most_once)
    bindings = {"group_id": group.group_id, "now": transaction.now, "at_most_once": at_most_once}
    expired = transaction.rows(SQL.expired_tracked, bindings)
    for position, attempt, name in expired:
        event = Event(name)
        tracking.forget(transaction, group, position)
        step = ending.Step(event, State.EXPIRED, position, position, "system", ending.REASONS[event], attempt)
        ending.end(transaction, queue, group, step)
    return len(expired)
