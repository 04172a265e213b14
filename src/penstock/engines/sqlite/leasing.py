"""Leases as others see them: who has what, and taking it over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.domain.identity import made_id
from penstock.domain.lifecycle import Event, State
from penstock.domain.observations import LeaseInfo
from penstock.domain.times import to_time
from penstock.engines.contract import Receipt
from penstock.engines.sqlite import forcing, queues, receiving, sending, settling, tracking
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/leases.sql")


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
    return _leases(transaction, transaction.rows(SQL.in_flight, bindings))


def of_messages(transaction: Transaction, name: str, group_name: str, ids: Iterable[str]) -> list[LeaseInfo]:
    queue, group = _find(transaction, name, group_name)
    if queue is None or group is None:
        return []
    found: list[LeaseInfo] = []
    for message_id in ids:
        found += _of_message(transaction, queue, group, message_id)
    return found


def _of_message(transaction: Transaction, queue: Queue, group: Group, message_id: str) -> list[LeaseInfo]:
    place = sending.locate(transaction, queue, message_id)
    if place is None or place.position is None:
        return []
    bindings = {"group_id": group.group_id, "position": place.position, "now": transaction.now}
    return _leases(transaction, transaction.rows(SQL.in_flight_at, bindings))


def _find(transaction: Transaction, name: str, group_name: str) -> tuple[Queue | None, Group | None]:
    queue = queues.find(transaction, name)
    return queue, None if queue is None else queues.find_group(transaction, queue, group_name)


def _leases(transaction: Transaction, rows: Iterable[tuple[Any, ...]]) -> list[LeaseInfo]:
    """A token is the time of its receive, as long as there is at most one in a microsecond."""
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


def take_over(
    transaction: Transaction,
    name: str,
    group_name: str,
    consumer: str,
    ids: Sequence[str],
    lease_seconds: float,
    counts: bool,
    force: bool,
) -> Receipt:
    queue = queues.get(transaction, name)
    group = queues.get_group(transaction, queue, group_name)
    queues.check_leasing(queue, group)
    event = Event.LEASE_END if counts else Event.RELEASE
    free: list[int] = []
    for message_id in dict.fromkeys(ids):
        leases = _of_message(transaction, queue, group, message_id)
        if leases:
            free += [one.position for one in leases if _end_lease(transaction, queue, group, one, event, consumer)]
        elif force:
            place = sending.locate(transaction, queue, message_id)
            position = None if place is None else place.position
            if position is not None and forcing.make_ready(transaction, queue, group, position):
                free.append(position)
    return receiving.receive_again(transaction, queue, group, consumer, free, lease_seconds)


def _end_lease(
    transaction: Transaction, queue: Queue, group: Group, lease: LeaseInfo, event: Event, consumer: str
) -> bool:
    """Whether the message is free to be taken by another."""
    flight = tracking.flight(transaction, group, lease.token, lease.position)
    if flight is None:
        return False
    reason = f"taken over by {consumer}"
    return settling.conclude(transaction, queue, group, flight, event, reason) is State.READY


def reached(transaction: Transaction, name: str, group_name: str) -> int:
    _, group = _find(transaction, name, group_name)
    if group is None:
        return 0
    position: int = transaction.value(SQL.reached, {"group_id": group.group_id})
    return position
