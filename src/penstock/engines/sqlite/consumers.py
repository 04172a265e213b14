"""Registered consumers: birth order, heartbeats, and the removal of the dead by the living."""

from __future__ import annotations

from penstock.domain.errors import ConsumerRemoved
from penstock.domain.names import shown
from penstock.domain.observations import ConsumerInfo
from penstock.domain.times import to_time
from penstock.engines.sqlite import queues, reclaiming
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/consumers.sql")


def register(transaction: Transaction, queue: str, group: str, name: str, heartbeat_seconds: float) -> ConsumerInfo:
    reader = queues.ensure_leasing_group(transaction, queues.ensure(transaction, queue), group)
    bindings = {"group_id": reader.group_id, "name": name, "now": transaction.now}
    transaction.run(SQL.register, {**bindings, "heartbeat_seconds": heartbeat_seconds})
    return _find(transaction, queue, reader, name)


def heartbeat(transaction: Transaction, queue: str, group: str, name: str) -> ConsumerInfo:
    reader = queues.get_group(transaction, queues.get(transaction, queue), group)
    bindings = {"group_id": reader.group_id, "name": name, "now": transaction.now}
    if not transaction.changes(SQL.heartbeat, bindings):
        raise ConsumerRemoved(
            f"consumer {shown(name)} of queue {queue!r} is not registered: it never was, or it missed its heartbeats"
            " and must register again"
        )
    return _find(transaction, queue, reader, name)


def deregister(transaction: Transaction, queue_name: str, group_name: str, name: str) -> int:
    queue = queues.get(transaction, queue_name)
    group = queues.get_group(transaction, queue, group_name)
    transaction.run(SQL.deregister, {"group_id": group.group_id, "name": name})
    return reclaiming.reclaim(transaction, queue, group, name)


def remove_missing(transaction: Transaction) -> int:
    """What a dead consumer held is free at once, without waiting for its leases to end."""
    missing = transaction.rows(SQL.missing, {"now": transaction.now})
    for _, name, queue, group in missing:
        deregister(transaction, queue, group, name)
    return len(missing)


def every(transaction: Transaction, queue: str | None) -> list[ConsumerInfo]:
    infos = [
        ConsumerInfo(consumer_id, name, of, group, index, living, to_time(registered), to_time(beat), seconds)
        for consumer_id, name, of, group, index, living, registered, beat, seconds in transaction.rows(SQL.consumers)
    ]
    return [info for info in infos if queue is None or info.queue == queue]


def _find(transaction: Transaction, queue: str, group: queues.Group, name: str) -> ConsumerInfo:
    """At a cost that does not depend on the consumers of other groups."""
    (row,) = transaction.rows(SQL.consumer, {"group_id": group.group_id, "name": name})
    consumer_id, registered, beat, seconds, index, living = row
    return ConsumerInfo(
        consumer_id, name, queue, group.name, index, living, to_time(registered), to_time(beat), seconds
    )
