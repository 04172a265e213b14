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


def meant(transaction: Transaction, queue: Queue, name: str, after: int | None) -> Batch | None:
    """The newest batch of a name, or the first one after a number."""
    if after is None:
        row = transaction.row(SQL.newest_batch, {"queue_id": queue.queue_id, "name": name})
    else:
        row = transaction.row(SQL.next_batch, {"queue_id": queue.queue_id, "name": name, "after": after})
    return None if row is None else Batch(*row)


def get(transaction: Transaction, queue: Queue, name: str, after: int | None) -> Batch:
    batch = meant(transaction, queue, name, after)
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


def mark(transaction: Transaction, queue: Queue, name: str, opens: bool) -> int:
    """The number before the batch that is meant by one who comes now."""
    batch = meant(transaction, queue, name, None)
    if batch is None:
        return 0
    return batch.batch_id if opens and batch.state in ENDED else batch.batch_id - 1


def joined(transaction: Transaction, queue: Queue, name: str, after: int | None) -> Batch:
    """The batch that a message goes into: made when there is none. One that has ended takes no more, and is not made
    anew in silence: nobody would start it."""
    batch = ensured(transaction, queue, name, after)
    if batch.state == "cancelling":
        raise BatchClosed(f"batch {shown(name)} of queue {queue.name!r} was cancelled and takes no more messages")
    if batch.state in ENDED:
        raise BatchClosed(
            f"batch {shown(name)} of queue {queue.name!r} is {batch.state} and takes no more messages: "
            "open a new one of that name (queue.batch, batch_open, QBATCH OPEN, penstock batch open)"
        )
    return batch


def opened(transaction: Transaction, queue: Queue, name: str, after: int | None) -> Batch:
    """As for a message, but the newest one may be made anew when it has ended: whoever opens a batch will start it."""
    return joined(transaction, queue, name, mark(transaction, queue, name, opens=True) if after is None else after)


def ensured(transaction: Transaction, queue: Queue, name: str, after: int | None) -> Batch:
    """The batch in whatever state, made when there is none."""
    if queue.policy.primary_group is None:
        raise InvalidInput(f"queue {queue.name!r} has no primary group: batch {shown(name)} could not end")
    batch = meant(transaction, queue, name, after)
    if batch is not None:
        return batch
    bindings = {"queue_id": queue.queue_id, "name": name, "after": after or 0, "now": transaction.now}
    return Batch(*transaction.rows(SQL.make_batch, bindings)[0])


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
