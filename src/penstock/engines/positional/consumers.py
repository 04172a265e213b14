"""Registered consumers: birth order, heartbeats, and the removal of consumers that missed them."""

from __future__ import annotations

from penstock.domain import refusals
from penstock.domain.results import ConsumerInfo
from penstock.domain.timestamps import SECOND, to_time
from penstock.engines.positional import lapsed_leases, queues
from penstock.engines.positional.database import Transaction

# How long a removed consumer is refused; after that its name may be used again.
REMEMBERED = 24 * 3600 * SECOND


def register(
    transaction: Transaction,
    queue: str,
    group: str,
    name: str,
    heartbeat_seconds: float,
    max_missed_heartbeats: int,
    heartbeats_per_sweep: int,
) -> ConsumerInfo:
    reader = queues.ensure_leasing_group(transaction, queues.ensure(transaction, queue), group)
    bindings = {"group_id": reader.group_id, "name": name}
    settings = {
        "heartbeat_seconds": heartbeat_seconds,
        "max_missed_heartbeats": max_missed_heartbeats,
        "heartbeats_per_sweep": heartbeats_per_sweep,
    }
    transaction.run("register_consumer", {**bindings, "now": transaction.now, **settings})
    transaction.run("readmit_consumer", bindings)
    return _find(transaction, queue, reader, name)


def heartbeat(transaction: Transaction, queue: str, group: str, name: str) -> ConsumerInfo:
    reader = queues.get_group(transaction, queues.get(transaction, queue), group)
    bindings = {"group_id": reader.group_id, "name": name, "now": transaction.now}
    beaten = transaction.rows("record_heartbeat", bindings)
    if not beaten:
        raise refusals.consumer_removed(queue, name)
    ((is_turn_to_sweep,),) = beaten
    if is_turn_to_sweep:
        remove_missing(transaction, reader.group_id)
    return _find(transaction, queue, reader, name)


def check_not_removed(transaction: Transaction, queue: queues.StoredQueue, group: queues.Group, name: str) -> None:
    """Refuse a consumer that was removed for missed heartbeats until it registers again."""
    if transaction.row("is_removed_consumer", {"group_id": group.group_id, "name": name}) is not None:
        raise refusals.consumer_removed(queue.name, name)


def deregister(transaction: Transaction, queue_name: str, group_name: str, name: str) -> int:
    queue = queues.get(transaction, queue_name)
    group = queues.get_group(transaction, queue, group_name)
    transaction.run("deregister_consumer", {"group_id": group.group_id, "name": name})
    return lapsed_leases.reclaim(transaction, queue, group, name)


def remove_missing(transaction: Transaction, group_id: int | None = None) -> int:
    """Remove consumers that missed too many heartbeats, in all groups or in one. Their leases end at once."""
    missing = transaction.rows("missing_consumers", {"now": transaction.now, "group_id": group_id})
    for missing_group_id, name, queue, group in missing:
        deregister(transaction, queue, group, name)
        noted = {"group_id": missing_group_id, "name": name, "now": transaction.now}
        transaction.run("note_removed_consumer", noted)
    if missing:
        transaction.run("forget_long_removed_consumers", {"before": transaction.now - REMEMBERED})
    return len(missing)


def every(transaction: Transaction, queue: str | None) -> list[ConsumerInfo]:
    infos = [
        ConsumerInfo(consumer_id, name, of, group, index, living, to_time(registered), to_time(beat), *heart)
        for consumer_id, name, of, group, index, living, registered, beat, *heart in transaction.rows("consumers")
    ]
    return [info for info in infos if queue is None or info.queue == queue]


def _find(transaction: Transaction, queue: str, group: queues.Group, name: str) -> ConsumerInfo:
    """One consumer, at a cost that does not depend on the consumers of other groups."""
    (row,) = transaction.rows("consumer", {"group_id": group.group_id, "name": name})
    consumer_id, registered, beat, *heart, index, living = row
    return ConsumerInfo(consumer_id, name, queue, group.name, index, living, to_time(registered), to_time(beat), *heart)
