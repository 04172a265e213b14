"""held -> ready: messages and retries whose time has come. Also held -> an outcome, for those that end before.

A held message is not in the log yet. It is appended when it becomes ready, so that no group's cursor can have passed
its place before, and all groups find it in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from penstock.domain.lifecycle import Event, State
from penstock.engines.sqlite import ending, queues, sending
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.sending import WITHDRAWN, Record
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/promote.sql")
# One pass makes at most this many messages ready: a receive must not wait for a million that came due together.
AT_ONCE = 1000


class _Held(NamedTuple):
    priority: int
    shard: int
    record: Record


def promote(transaction: Transaction, queue: Queue, limit: int = AT_ONCE) -> int:
    """Append the queue's held messages that are due."""
    bindings = {"queue_id": queue.queue_id, "now": transaction.now, "limit": limit}
    held = [row[0] for row in transaction.rows(SQL.due_held, bindings)]
    step = ending.Step(Event.DUE, State.READY, 0, 0, by="system")
    _release(transaction, queue, held, step)
    return len(held)


def promote_batch(transaction: Transaction, queue: Queue, batch_id: int) -> None:
    """Append the members of a batch that was started, which are available from now on; those with a delay of their own
    go on waiting."""
    bindings = {"batch_id": batch_id, "now": transaction.now}
    held = [row[0] for row in transaction.rows(SQL.due_members, bindings)]
    transaction.run(SQL.make_available, bindings)
    step = ending.Step(Event.BATCH_START, State.READY, 0, 0, by="system")
    _release(transaction, queue, held, step)


def _release(transaction: Transaction, queue: Queue, held: Sequence[int], step: ending.Step) -> None:
    for position in _append(transaction, queue, held, withdrawn=False):
        ending.record(transaction, queue.queue_id, None, step._replace(first=position, last=position))


def withdraw(transaction: Transaction, queue: Queue, held: Sequence[int], step: ending.Step) -> None:
    """held -> an outcome, in every group: the message goes where nobody reads, so that its trail can be read."""
    for position in _append(transaction, queue, held, withdrawn=True):
        ending.end_unread(transaction, queue, step._replace(first=position, last=position))


def _append(transaction: Transaction, queue: Queue, held: Sequence[int], withdrawn: bool) -> list[int]:
    """Move held messages to the end of the log, in their order; return their positions."""
    appended: list[int] = []
    messages = (_take(transaction, held_id) for held_id in held)
    for (priority, shard), neighbours in groupby(messages, key=lambda message: (message.priority, message.shard)):
        records = [message.record for message in neighbours]
        lane = WITHDRAWN - priority if withdrawn else priority
        first = sending.append(transaction, queue.queue_id, lane, shard, records)
        for position, record in enumerate(records, first):
            _arrive(transaction, queue, position, record)
            appended.append(position)
    if held:
        transaction.run(queues.SQL.count_held, {"queue_id": queue.queue_id, "change": -len(held)})
    return appended


def _take(transaction: Transaction, held_id: int) -> _Held:
    priority, shard, message_id, created_at, *rest = transaction.rows(SQL.take_held, {"held_id": held_id})[0]
    return _Held(priority, shard, Record(created_at, message_id, *rest))


def _arrive(transaction: Transaction, queue: Queue, position: int, record: Record) -> None:
    assert record.id is not None
    sending.identify(transaction, queue.queue_id, record.id, position, None)
    if record.address is not None:
        bindings = {"queue_id": queue.queue_id, "address": record.address, "id": record.id, "position": position}
        transaction.run(SQL.settle_address, bindings)
    if record.batch_id is not None:
        transaction.run(sending.SQL.join_batch, {"position": position, "batch_id": record.batch_id})


def make_ready(transaction: Transaction, queue: Queue, group: Group, limit: int = AT_ONCE) -> int:
    """Retries of the group that are due."""
    bindings = {"group_id": group.group_id, "now": transaction.now, "limit": limit}
    due = transaction.rows(SQL.due_tracked, bindings)
    for position, attempt in due:
        transaction.run(SQL.make_ready, {"group_id": group.group_id, "position": position})
        step = ending.Step(Event.DUE, State.READY, position, position, "system", None, attempt)
        ending.record(transaction, queue.queue_id, group.group_id, step)
    return len(due)
