"""Rows of batches: lookup, membership, state and counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from penstock.domain import refusals
from penstock.domain.message import Draft, Options
from penstock.domain.results import BatchInfo
from penstock.engines.positional import queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import StoredQueue

ENDED = ("finished", "cancelled")


class StoredBatch(NamedTuple):
    batch_id: int
    queue_id: int
    name: str
    state: str
    total: int
    cancelled: int
    end_message: bytes | None
    abort_message: bytes | None


def resolve(transaction: Transaction, queue: StoredQueue, name: str, after: int | None) -> StoredBatch | None:
    """The newest batch of the name, or with `after` the first one after that number."""
    if after is None:
        row = transaction.row("newest_batch", {"queue_id": queue.queue_id, "name": name})
    else:
        row = transaction.row("next_batch", {"queue_id": queue.queue_id, "name": name, "after": after})
    return None if row is None else StoredBatch(*row)


def get(transaction: Transaction, queue: StoredQueue, name: str, after: int | None) -> StoredBatch:
    batch = resolve(transaction, queue, name, after)
    if batch is None:
        known = {batch.name for batch in every(transaction, queue)}
        raise refusals.no_batch(queue.name, name, known)
    return batch


def find(transaction: Transaction, batch_id: int) -> StoredBatch:
    row = transaction.row("find_batch", {"batch_id": batch_id})
    assert row is not None
    return StoredBatch(*row)


def every(transaction: Transaction, queue: StoredQueue) -> list[StoredBatch]:
    return [StoredBatch(*row) for row in transaction.rows("all_batches", {"queue_id": queue.queue_id})]


def mark(transaction: Transaction, queue: StoredQueue, name: str, opens: bool) -> int:
    """The number before the batch that a caller means now (`contract.batches`)."""
    batch = resolve(transaction, queue, name, None)
    if batch is None:
        return 0
    return batch.batch_id if opens and batch.state in ENDED else batch.batch_id - 1


def join(transaction: Transaction, queue: StoredQueue, name: str, after: int | None) -> StoredBatch:
    """The batch that a message is added to, created if there is none. A batch that has ended is not replaced by a new
    one, because nobody would start it."""
    batch = ensure(transaction, queue, name, after)
    if batch.state == "cancelling" or batch.state in ENDED:
        raise refusals.batch_closed(queue.name, name, batch.state)
    return batch


def join_from(
    transaction: Transaction, queue: StoredQueue, name: str, after: int | None, owner_name: str | None
) -> StoredBatch:
    """The same for a message of another queue than that of the batch."""
    if owner_name is None or owner_name == queue.name:
        return join(transaction, queue, name, after)
    if queue.policy.primary_group is None:
        raise refusals.batch_part_without_owner(queue.name, name)
    batch = join(transaction, queues.ensure(transaction, owner_name), name, after)
    transaction.run("add_batch_queue", {"batch_id": batch.batch_id, "queue_id": queue.queue_id})
    return batch


def queues_of(transaction: Transaction, batch: StoredBatch) -> list[StoredQueue]:
    """The queue of the batch and the other queues in which it has members."""
    bindings = {"batch_id": batch.batch_id, "queue_id": batch.queue_id}
    return [queues.from_row(row) for row in transaction.rows("batch_queues", bindings)]


def reopen(transaction: Transaction, queue: StoredQueue, name: str, after: int | None) -> StoredBatch:
    """As for a message, but a newest batch that has ended is replaced: the caller opens it, and so will start it."""
    return join(transaction, queue, name, mark(transaction, queue, name, opens=True) if after is None else after)


def ensure(transaction: Transaction, queue: StoredQueue, name: str, after: int | None) -> StoredBatch:
    """The batch in any state, created if there is none."""
    if queue.policy.primary_group is None:
        raise refusals.batch_without_owner(queue.name, name)
    batch = resolve(transaction, queue, name, after)
    if batch is not None:
        return batch
    bindings = {"queue_id": queue.queue_id, "name": name, "after": after or 0, "now": transaction.now}
    return StoredBatch(*transaction.rows("make_batch", bindings)[0])


def info(transaction: Transaction, queue: StoredQueue, batch: StoredBatch) -> BatchInfo:
    remaining = transaction.value("count_remaining_members", {"batch_id": batch.batch_id})
    finished = batch.total - remaining
    return BatchInfo(batch.name, queue.name, batch.state, batch.total, remaining, finished, batch.cancelled)


def cancelled(transaction: Transaction, queue: StoredQueue, group_name: str, positions: Sequence[int]) -> list[bool]:
    group = queues.get_group(transaction, queue, group_name)
    return [
        bool(transaction.value("is_message_cancelled", {"group_id": group.group_id, "position": position}))
        for position in positions
    ]


def set_state(transaction: Transaction, batch: StoredBatch, state: str) -> None:
    ended_at = transaction.now if state in ENDED else None
    transaction.run("set_batch_state", {"batch_id": batch.batch_id, "state": state, "ended_at": ended_at})


def encode_draft(draft: Draft) -> bytes:
    return msgspec.msgpack.encode(draft)


def decode_draft(encoded: bytes) -> Draft:
    payload, content_type, options = _decode(encoded)
    return payload, content_type, options


_decode = msgspec.msgpack.Decoder(tuple[bytes, str | None, Options]).decode
