"""Leases: messages in flight, and messages that a group tracks one by one.

First attempts are leased as ranges (`penstock_lease`): one row for a whole receive. A message gets a row of its own
(`penstock_tracked`) once it differs from its neighbours: it is retried, or its lease ends at a time of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from penstock.domain.identity import made_id
from penstock.domain.lifecycle import State
from penstock.domain.results import LeaseInfo
from penstock.domain.settlement import Attempt, Decision, is_held
from penstock.domain.timestamps import to_time
from penstock.engines.positional import log, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


class LeaseRange(msgspec.Struct, frozen=True):
    """A range of first attempts in flight."""

    token: int
    first: int
    last: int
    group_id: int
    lane_id: int
    consumer: str
    ends_at: int
    needs_checks: int = 1

    def part(self, first: int, last: int) -> tuple[int | str, ...]:
        """The row of a part of the range."""
        return self.token, first, last, self.group_id, self.lane_id, self.consumer, self.ends_at


class Flight(NamedTuple):
    """One message in flight, whether leased in a range or tracked."""

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
    lease: LeaseRange | None
    reason: str | None = None
    # Whether it was taken out of its lease already.
    is_free: bool = False

    def as_attempt(self) -> Attempt:
        return Attempt(self.attempt, self.expires_at, self.deadline_at, self.batch_cancelled)


def flight(transaction: Transaction, group: Group, token: int, position: int) -> Flight | None:
    """The message, if this token still may settle it."""
    lease = lease_at(transaction, group, position)
    if lease is None:
        return _tracked_flight(transaction, group, token, position)
    if lease.token != token:
        return None
    found = flights(transaction, lease, position, position)[0]
    return found if is_held(found.as_attempt(), lease.ends_at, transaction.now) else None


def lease_at(transaction: Transaction, group: Group, position: int) -> LeaseRange | None:
    """The range that contains a position, whatever its token."""
    row = transaction.row("lease_at", (group.group_id, position))
    lease = None if row is None else LeaseRange(*row)
    return None if lease is None or lease.first > position else lease


def leases_of(transaction: Transaction, group: Group, token: int, first: int, last: int) -> list[LeaseRange]:
    """The ranges of a receive that are still leased between two positions, in order."""
    return [LeaseRange(*row) for row in transaction.rows("leases_of", (group.group_id, first, last, token))]


def flights(transaction: Transaction, lease: LeaseRange, first: int, last: int) -> list[Flight]:
    """Messages of a leased range, all at their first attempt."""
    token, consumer = lease.token, lease.consumer
    return [
        Flight(position, lane_id, priority, 1, expires, deadline, batch, bool(cancelled), token, consumer, lease)
        for position, lane_id, priority, expires, deadline, batch, cancelled in transaction.rows(
            "messages_in_flight", {"first": first, "last": last}
        )
    ]


def _tracked_flight(transaction: Transaction, group: Group, token: int, position: int) -> Flight | None:
    row = transaction.row("find_tracked", {"group_id": group.group_id, "position": position})
    if row is None:
        return None
    _, lane_id, priority, state, attempt, until_at, expires_at, deadline_at, batch_id, holder, consumer, reason = row
    if state != State.LEASED or holder != token:
        return None
    if not is_held(Attempt(attempt, expires_at, deadline_at), until_at, transaction.now):
        return None
    cancelled = bool(batch_id is not None and transaction.value("is_batch_cancelled", {"batch_id": batch_id}))
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


def end_lease(transaction: Transaction, group: Group, flight: Flight) -> None:
    """Remove the message from its lease."""
    if flight.lease is not None:
        split(transaction, flight.lease, flight.position, flight.position)
    else:
        transaction.run("remove_tracked", {"group_id": group.group_id, "position": flight.position})


def split(transaction: Transaction, lease: LeaseRange, first: int, last: int) -> None:
    """Remove positions from a range; the rest on either side stays leased."""
    drop(transaction, lease)
    for left_first, left_last in ((lease.first, first - 1), (last + 1, lease.last)):
        if left_first <= left_last:
            transaction.run("make_lease", lease.part(left_first, left_last))


def drop(transaction: Transaction, lease: LeaseRange) -> None:
    transaction.run("drop_lease", (lease.group_id, lease.last))


def track(transaction: Transaction, group: Group, flight: Flight, decision: Decision, reason: str | None) -> None:
    """leased -> held or ready, tracked from now on."""
    bindings = {
        "group_id": group.group_id,
        "position": flight.position,
        "lane_id": flight.lane_id,
        "priority": flight.priority,
        "state": decision.state.value,
        "attempt": decision.attempt,
        "until_at": decision.due_at,
        "expires_at": decision.expires_at,
        "deadline_at": flight.deadline_at,
        "batch_id": flight.batch_id,
        # No longer valid, but the next token must be greater.
        "token": flight.token,
        "consumer": None,
        "reason": flight.reason if reason is None else reason,
    }
    transaction.run("put_tracked", bindings)


def track_leased(transaction: Transaction, group: Group, flight: Flight, ends_at: int) -> None:
    """leased -> leased, tracked because its lease ends at a time of its own."""
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
    transaction.run("put_tracked", bindings)


def forget(transaction: Transaction, group: Group, position: int) -> int:
    """Stop tracking a message that no consumer holds; return its deliveries so far."""
    attempt: int = transaction.value("remove_tracked", {"group_id": group.group_id, "position": position})
    return attempt


def skip(transaction: Transaction, group: Group, position: int) -> None:
    transaction.run("skip", {"group_id": group.group_id, "position": position})


def every(
    transaction: Transaction, name: str, group_name: str, consumer: str | None, after: int, limit: int
) -> list[LeaseInfo]:
    queue, group = _find(transaction, name, group_name)
    if queue is None or group is None:
        return []
    bindings = {
        "group_id": group.group_id,
        "now": transaction.now,
        "consumer": consumer,
        "after": after,
        "limit": limit,
    }
    return _leases(transaction, transaction.rows("leases_of_group", bindings))


def of_messages(transaction: Transaction, name: str, group_name: str, ids: Iterable[str]) -> list[LeaseInfo]:
    queue, group = _find(transaction, name, group_name)
    if queue is None or group is None:
        return []
    found: list[LeaseInfo] = []
    for message_id in ids:
        found += of_message(transaction, queue, group, message_id)
    return found


def of_message(transaction: Transaction, queue: StoredQueue, group: Group, message_id: str) -> list[LeaseInfo]:
    place = log.locate(transaction, queue, message_id)
    if place is None or place.position is None:
        return []
    bindings = {"group_id": group.group_id, "position": place.position, "now": transaction.now}
    return _leases(transaction, transaction.rows("lease_of_message", bindings))


def _find(transaction: Transaction, name: str, group_name: str) -> tuple[StoredQueue | None, Group | None]:
    queue = queues.find(transaction, name)
    return queue, None if queue is None else queues.find_group(transaction, queue, group_name)


def _leases(transaction: Transaction, rows: Iterable[tuple[Any, ...]]) -> list[LeaseInfo]:
    """A token is the time of its receive, unless there were several within one microsecond."""
    return [
        LeaseInfo(
            chosen or made_id(created_at, transaction.salt, position),
            position,
            token,
            consumer,
            attempt,
            to_time(created_at),
            to_time(min(token, transaction.now)),
            to_time(ends_at),
        )
        for position, created_at, chosen, token, consumer, attempt, ends_at in rows
    ]


def reached(transaction: Transaction, name: str, group_name: str) -> int:
    _, group = _find(transaction, name, group_name)
    if group is None:
        return 0
    position: int = transaction.value("reached_position", {"group_id": group.group_id})
    return position
