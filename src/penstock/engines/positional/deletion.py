"""Emptying and deleting queues."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain import refusals
from penstock.engines.positional import batch_lifecycle, deletion, marks, outcomes, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import FORGET


def count(transaction: Transaction, name: str) -> int:
    """How many messages a flush would remove."""
    queue = queues.find(transaction, name)
    return 0 if queue is None else int(transaction.value("flush_counts", {"queue_id": queue.queue_id}))


def flush(transaction: Transaction, name: str) -> int:
    """Remove every message. The queue's batches are removed too; batches of other queues continue without the members
    they had here."""
    queue = queues.find(transaction, name)
    if queue is None:
        return 0
    bindings = {"queue_id": queue.queue_id}
    visiting = transaction.rows("batches_of_other_queues", bindings)
    batch_lifecycle.abandon(transaction, queue)
    count: int = transaction.value("flush_counts", bindings)
    ends = {
        **bindings,
        "last_position": transaction.value("last_position", bindings),
        "last_entry": transaction.value("last_entry", bindings),
    }
    marks.keep_last(transaction, queue, ends["last_position"])
    marks.keep_last_entry(transaction, queue)
    transaction.run("keep_position")
    transaction.run("keep_entry")
    for statement in _FLUSH:
        transaction.run(statement, bindings)
    transaction.run("flush_groups", ends)
    transaction.run("flush_queue", ends)
    for batch_id, members in visiting:
        transaction.run("count_cancelled_members", {"batch_id": batch_id, "count": members})
        outcomes.end_batch_if_done(transaction, batch_id)
    return count


def clear(transaction: Transaction, name: str) -> bool:
    queue = queues.find(transaction, name)
    if queue is None:
        return False
    gone = queues.groups(transaction, queue)
    count = flush(transaction, name)
    transaction.run("set_primary", {"queue_id": queue.queue_id, "group_id": None})
    for group in gone:
        for statement in FORGET:
            transaction.run(statement, {"group_id": group.group_id})
    return bool(gone or count)


# In this order: rows that are found through lanes and groups are deleted before those.
_FLUSH = (
    "flush_visitors",
    "flush_batch_queues",
    "flush_log",
    "flush_dead_log",
    "flush_runs",
    "flush_cursors",
    "flush_leases",
    "flush_tracked",
    "flush_skips",
    "flush_dead_letters",
    "flush_members",
    "flush_held",
    "flush_identities",
    "flush_audit",
    "flush_removed",
    "flush_addresses",
    "flush_batches",
    "flush_marks",
    "flush_lanes",
)


def delete(transaction: Transaction, name: str) -> int:
    queue = queues.get(transaction, name)
    bindings = {"queue_id": queue.queue_id}
    schedules = [one for (one,) in transaction.rows("schedules_of_queue", {"name": name})]
    consumers = [one for (one,) in transaction.rows("consumers_of_queue", bindings)]
    _check_unused(name, schedules, consumers)
    count = deletion.flush(transaction, name)
    for statement in _DELETE:
        transaction.run(statement, bindings)
    return count


_DELETE = (
    "delete_staged",
    "delete_stages",
    "delete_trimmed",
    "delete_trail",
    "delete_removed_consumers",
    "delete_groups",
    "delete_queue",
)


def _check_unused(queue: str, schedules: Sequence[str], consumers: Sequence[str]) -> None:
    """Refuse while a schedule or a consumer would create the queue again."""
    if schedules:
        raise refusals.queue_scheduled(queue, schedules)
    if consumers:
        raise refusals.queue_consumed(queue, consumers)
