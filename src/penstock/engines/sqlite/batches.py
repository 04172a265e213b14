"""What a batch is in the tables: its row, its state, and what remains of it."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from penstock.domain.errors import BatchClosed, InvalidInput, NotFound
from penstock.domain.message import Draft, Options
from penstock.domain.names import nearest, shown
from penstock.domain.observations import BatchInfo
from penstock.engines.sqlite.queues import Queue
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/batches.sql")
ENDED = ("finished", "cancelled")


class Batch(NamedTuple):
    batch_id: int
    queue_id: int
    name: str
    state: str
    total: int
    end_message: bytes | None
    abort_message: bytes | None


def newest(transaction: Transaction, queue: Queue, name: str) -> Batch | None:
    row = transaction.row(SQL.newest_batch, {"queue_id": queue.queue_id, "name": name})
    return None if row is None else Batch(*row)


def get(transaction: Transaction, queue: Queue, name: str) -> Batch:
    batch = newest(transaction, queue, name)
    if batch is None:
        known = {batch.name for batch in every(transaction, queue)}
        raise NotFound(f"queue {queue.name!r} has no batch {shown(name)}{nearest(name, known)}")
    return batch


def find(transaction: Transaction, batch_id: int) -> Batch:
    row = transaction.row(SQL.find_batch, {"batch_id": batch_id})
    assert row is not None
    return Batch(*row)


def every(transaction: Transaction, queue: Queue) -> list[Batch]:
    return [Batch(*row) for row in transaction.rows(SQL.all_batches, {"queue_id": queue.queue_id})]


def joined(transaction: Transaction, queue: Queue, name: str) -> Batch:
    """The batch that a message of that name goes into: a new one when the last has ended."""
    if queue.policy.primary_group is None:
        raise InvalidInput(f"queue {queue.name!r} has no primary group: batch {shown(name)} could not end")
    batch = newest(transaction, queue, name)
    if batch is not None and batch.state == "cancelling":
        raise BatchClosed(f"batch {shown(name)} of queue {queue.name!r} was cancelled and takes no more messages")
    if batch is None or batch.state in ENDED:
        bindings = {"queue_id": queue.queue_id, "name": name, "now": transaction.now}
        return Batch(*transaction.rows(SQL.make_batch, bindings)[0])
    return batch


def info(transaction: Transaction, queue: Queue, batch: Batch) -> BatchInfo:
    remaining = transaction.value(SQL.remaining, {"batch_id": batch.batch_id})
    return BatchInfo(batch.name, queue.name, batch.state, batch.total, remaining, batch.total - remaining)


def set_state(transaction: Transaction, batch: Batch, state: str) -> None:
    ended_at = transaction.now if state in ENDED else None
    transaction.run(SQL.set_batch_state, {"batch_id": batch.batch_id, "state": state, "ended_at": ended_at})


def encode_draft(draft: Draft) -> bytes:
    return msgspec.msgpack.encode(draft)


def decode_draft(encoded: bytes) -> Draft:
    payload, content_type, options = _decode(encoded)
    return payload, content_type, options


_decode = msgspec.msgpack.Decoder(tuple[bytes, str | None, Options]).decode
