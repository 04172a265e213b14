"""Messages in flight, and messages that a group looks after one by one.

First attempts are leased as ranges (`penstock_lease`): one row for a whole receive. A message gets a row of its own
(`penstock_tracked`) once it differs from its neighbours: it is tried again, or its lease ends at a time of its own.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain.lifecycle import State
from penstock.domain.settlement import Attempt, Verdict
from penstock.engines.sqlite.queues import Group
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/tracking.sql")


class Lease(NamedTuple):
    """A range of first attempts in flight."""

    token: int
    first: int
    last: int
    group_id: int
    lane_id: int
    consumer: str
    ends_at: int
    careful: int = 1

    def part(self, first: int, last: int) -> tuple[int | str, ...]:
        """The row of a piece of it."""
        return self.token, first, last, self.group_id, self.lane_id, self.consumer, self.ends_at


class Flight(NamedTuple):
    """One message in flight, wherever its lease is written."""

    position: int
    lane_id: int
    priority: int
    attempt: int
    expires_at: int | None
    deadline_at: int | None
    batch_id: int | None
    batch_cancelled: bool
    token: int
    consumer: str
    lease: Lease | None
    reason: str | None = None

    def as_attempt(self) -> Attempt:
        return Attempt(self.attempt, self.expires_at, self.deadline_at, self.batch_cancelled)


def flight(transaction: Transaction, group: Group, token: int, position: int) -> Flight | None:
    """The message if this token still has the right to settle it."""
    lease = lease_at(transaction, group, position)
    if lease is None:
        return _tracked_flight(transaction, group, token, position)
    is_held = lease.token == token and lease.ends_at > transaction.now
    return flights(transaction, lease, position, position)[0] if is_held else None


def lease_at(transaction: Transaction, group: Group, position: int) -> Lease | None:
    """The range that holds a position, whoever has it."""
    row = transaction.row(SQL.lease_at, (group.group_id, position))
    lease = None if row is None else Lease(*row)
    return None if lease is None or lease.first > position else lease


def leases_of(transaction: Transaction, group: Group, token: int, first: int, last: int) -> list[Lease]:
    """What is left of a receive from one position to another, in order."""
    return [Lease(*row) for row in transaction.rows(SQL.leases_of, (group.group_id, first, last, token))]


def flights(transaction: Transaction, lease: Lease, first: int, last: int) -> list[Flight]:
    """Messages of one lease; every one is at its first attempt."""
    token, consumer = lease.token, lease.consumer
    return [
        Flight(position, lane_id, priority, 1, expires, deadline, batch, bool(cancelled), token, consumer, lease)
        for position, lane_id, priority, expires, deadline, batch, cancelled in transaction.rows(
            SQL.in_range, {"first": first, "last": last}
        )
    ]


def _tracked_flight(transaction: Transaction, group: Group, token: int, position: int) -> Flight | None:
    row = transaction.row(SQL.find_tracked, {"group_id": group.group_id, "position": position})
    if row is None:
        return None
    _, lane_id, priority, state, attempt, until_at, expires_at, deadline_at, batch_id, holder, consumer, reason = row
    if state != State.LEASED or holder != token or until_at <= transaction.now:
        return None
    cancelled = bool(batch_id is not None and transaction.value(SQL.is_cancelled, {"batch_id": batch_id}))
    return Flight(
        position,
        lane_id,
        priority,
        attempt,
        expires_at,
        deadline_at,
        batch_id,
        cancelled,
        token,
        consumer,
        None,
        reason,
    )


def land(transaction: Transaction, group: Group, flight: Flight) -> None:
    """The message is no longer in flight: take it out of its lease."""
    if flight.lease is not None:
        carve(transaction, flight.lease, flight.position, flight.position)
    else:
        transaction.rows(SQL.forget, {"group_id": group.group_id, "position": flight.position})


def carve(transaction: Transaction, lease: Lease, first: int, last: int) -> None:
    """Take positions out of a range; what is left on either side stays in flight."""
    drop(transaction, lease)
    for left_first, left_last in ((lease.first, first - 1), (last + 1, lease.last)):
        if left_first <= left_last:
            transaction.run(SQL.make_lease, lease.part(left_first, left_last))


def drop(transaction: Transaction, lease: Lease) -> None:
    transaction.run(SQL.drop_lease, (lease.group_id, lease.last))


def track(transaction: Transaction, group: Group, flight: Flight, verdict: Verdict, reason: str | None) -> None:
    """leased -> held or ready, with a row of its own from now on."""
    bindings = {
        "group_id": group.group_id,
        "position": flight.position,
        "lane_id": flight.lane_id,
        "priority": flight.priority,
        "state": verdict.state.value,
        "attempt": verdict.attempt,
        "until_at": verdict.due_at,
        "expires_at": verdict.expires_at,
        "deadline_at": flight.deadline_at,
        "batch_id": flight.batch_id,
        # Not the right to settle any more, but the next one must be greater.
        "token": flight.token,
        "consumer": None,
        "reason": flight.reason if reason is None else reason,
    }
    transaction.run(SQL.track, bindings)


def track_leased(transaction: Transaction, group: Group, flight: Flight, ends_at: int) -> None:
    """leased -> leased, with an end of its own."""
    bindings = {
        "group_id": group.group_id,
        "position": flight.position,
        "lane_id": flight.lane_id,
        "priority": flight.priority,
        "state": State.LEASED.value,
        "attempt": flight.attempt,
        "until_at": ends_at,
        "expires_at": flight.expires_at,
        "deadline_at": flight.deadline_at,
        "batch_id": flight.batch_id,
        "token": flight.token,
        "consumer": flight.consumer,
        "reason": flight.reason,
    }
    transaction.run(SQL.track, bindings)


def forget(transaction: Transaction, group: Group, position: int) -> int:
    """The message ends while nobody has it; how often it was handed out."""
    attempt: int = transaction.value(SQL.forget, {"group_id": group.group_id, "position": position})
    return attempt


def skip(transaction: Transaction, group: Group, position: int) -> None:
    transaction.run(SQL.skip, {"group_id": group.group_id, "position": position})
