"""held -> ready for messages and retries that are due; held -> an outcome for messages that end before.

A held message is not in the log. It is appended when it becomes ready, so that no cursor can have passed it, and all
groups read it in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

import msgspec

from penstock.domain.lifecycle import Event, State
from penstock.engines.positional import audit, log, outcomes
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.log import WITHDRAWN, Record
from penstock.engines.positional.queues import Group, StoredQueue

# The most messages that one pass promotes: a receive must not wait for a million that come due together.
AT_ONCE = 1000


class _Held(NamedTuple):
    priority: int
    shard: int
    record: Record


def promote(transaction: Transaction, queue: StoredQueue, limit: int = AT_ONCE) -> int:
    """Append the queue's held messages that are due."""
    bindings = {"queue_id": queue.queue_id, "now": transaction.now, "limit": limit}
    held = [row[0] for row in transaction.rows("due_held", bindings)]
    step = audit.AuditStep(Event.DUE, State.READY, 0, 0, by="system")
    _release(transaction, queue, held, step)
    return len(held)


def promote_batch(transaction: Transaction, queue: StoredQueue, batch_id: int) -> None:
    """Append the due members of a started batch in one of its queues; members with a later delay stay held."""
    bindings = {"batch_id": batch_id, "queue_id": queue.queue_id, "now": transaction.now}
    held = [row[0] for row in transaction.rows("due_members", bindings)]
    transaction.run("make_available", bindings)
    step = audit.AuditStep(Event.BATCH_START, State.READY, 0, 0, by="system")
    _release(transaction, queue, held, step)


def _release(transaction: Transaction, queue: StoredQueue, held: Sequence[int], step: audit.AuditStep) -> None:
    for position in _append(transaction, queue, held, withdrawn=False):
        audit.record(transaction, queue.queue_id, None, msgspec.structs.replace(step, first=position, last=position))


def withdraw(transaction: Transaction, queue: StoredQueue, held: Sequence[int], step: audit.AuditStep) -> None:
    """held -> an outcome in every group: the message is appended to a lane that nobody reads, which keeps its audit
    readable."""
    for position in _append(transaction, queue, held, withdrawn=True):
        outcomes.end_unread(transaction, queue, msgspec.structs.replace(step, first=position, last=position))


def _append(transaction: Transaction, queue: StoredQueue, held: Sequence[int], withdrawn: bool) -> list[int]:
    """Move held messages to the end of the log, in their order; return their positions."""
    appended: list[int] = []
    for (priority, shard), neighbours in groupby(
        _take(transaction, held), key=lambda message: (message.priority, message.shard)
    ):
        records = [message.record for message in neighbours]
        lane = WITHDRAWN - priority if withdrawn else priority
        first = log.append(transaction, queue.queue_id, lane, shard, records)
        log.identify(transaction, queue.queue_id, [(str(record.id), at) for at, record in enumerate(records, first)])
        for position, record in enumerate(records, first):
            _place(transaction, queue, position, record)
            appended.append(position)
    if held:
        transaction.run("count_held", {"queue_id": queue.queue_id, "change": -len(held)})
    return appended


def _take(transaction: Transaction, held: Sequence[int]) -> list[_Held]:
    """Remove held messages and return them, in the order given."""
    rows = {row[0]: row for row in transaction.rows_of("take_held", list(held), {})}
    taken: list[_Held] = []
    for held_id in held:
        _, priority, shard, message_id, created_at, *rest = rows[held_id]
        taken.append(_Held(priority, shard, Record(created_at, message_id, *rest)))
    return taken


def _place(transaction: Transaction, queue: StoredQueue, position: int, record: Record) -> None:
    if record.address is not None:
        bindings = {"queue_id": queue.queue_id, "address": record.address, "id": record.id, "position": position}
        transaction.run("place_address", bindings)
    if record.batch_id is not None:
        transaction.run("join_batch", {"position": position, "batch_id": record.batch_id})


def make_ready(transaction: Transaction, queue: StoredQueue, group: Group, limit: int = AT_ONCE) -> int:
    """Make due retries of the group ready."""
    bindings = {"group_id": group.group_id, "now": transaction.now, "limit": limit}
    due = transaction.rows("due_tracked", bindings)
    for position, attempt in due:
        transaction.run("make_retry_ready", {"group_id": group.group_id, "position": position})
        step = audit.AuditStep(Event.DUE, State.READY, position, position, "system", None, attempt)
        audit.record(transaction, queue.queue_id, group.group_id, step)
    return len(due)
