"""Messages put aside part by part, then sent all at once and only once: how a sink with many tasks sends exactly once.

A stretch of staged rows is written in one transaction. A release moves the stretches of the parts it was given into the
log, in one transaction with its entry in the ledger; what tasks that failed have staged is dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.message import PLAIN, Draft, Options, check_size
from penstock.domain.times import SECOND
from penstock.engines import outgoing
from penstock.engines.sqlite import ledger, queues, sending
from penstock.engines.sqlite.connection import Database
from penstock.engines.sqlite.queues import Queue
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

if TYPE_CHECKING:
    import pyarrow

SQL = Statements("penstock.engines.sqlite", "sql/staging.sql")
KIND = "sink"
# What nobody has released after this long belongs to a job that is gone.
ABANDONED = 24 * 3600 * SECOND
_encode_options = msgspec.msgpack.Encoder().encode
_decode_options = msgspec.msgpack.Decoder(Options).decode


def stage(database: Database, name: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
    count = 0
    for batch in batches:
        outgoing.check_batch(batch)
        if batch.num_rows:
            plain = outgoing.is_plain(batch)
            rows = _plain_rows(batch) if plain else [_row(one) for one in outgoing.drafts(batch)]
            with database.write() as transaction:
                _stage(transaction, queues.ensure(transaction, name), key, part, rows, plain)
            count += len(rows)
    return count


def _plain_rows(batch: pyarrow.RecordBatch) -> list[tuple[Any, ...]]:
    types = batch.column("content_type").to_pylist() if "content_type" in batch.schema.names else repeat(None)
    return list(zip(types, repeat(None), batch.column("payload").to_pylist(), strict=False))


def _row(one: Draft) -> tuple[Any, ...]:
    payload, content_type, options = one
    return content_type, None if options == PLAIN else _encode_options(options), payload


def _stage(
    transaction: Transaction, queue: Queue, key: str, part: str, rows: list[tuple[Any, ...]], is_plain: bool
) -> None:
    check_size(max((row[2] for row in rows), key=len), queue.policy.max_payload_bytes)
    first: int = transaction.value(SQL.next_id)
    last = first + len(rows) - 1
    transaction.run_many(SQL.stage, ((staged_id, *row) for staged_id, row in enumerate(rows, first)))
    stretch = {"first": first, "last": last, "queue_id": queue.queue_id, "key": key, "part": part}
    transaction.run(SQL.note, {**stretch, "is_plain": is_plain, "now": transaction.now})


def release(transaction: Transaction, name: str, key: str, parts: Sequence[str]) -> int | None:
    """Nothing if the ledger has the entry: then these messages have been sent before."""
    queue = queues.ensure(transaction, name)
    count: int | None = None
    if ledger.entry(transaction, KIND, _entry(name, key)) is None:
        count = sum(_send_part(transaction, queue, key, part) for part in parts)
        value = msgspec.json.encode({"count": count, "at": transaction.now}).decode()
        ledger.record(transaction, KIND, {_entry(name, key): value}, (), {})
    discard(transaction, name, key)
    return count


def _entry(name: str, key: str) -> str:
    return f"{key}/{name}"


def _send_part(transaction: Transaction, queue: Queue, key: str, part: str) -> int:
    bindings = {"queue_id": queue.queue_id, "key": key, "part": part}
    count = 0
    for first, last, is_plain in transaction.rows(SQL.stretches, bindings):
        plainly = is_plain and sending.is_plainly_sent(queue.policy)
        (_move if plainly else _send)(transaction, queue, first, last)
        count += last - first + 1
    return count


def _move(transaction: Transaction, queue: Queue, first: int, last: int) -> None:
    """Without looking at any message."""
    queues.ensure_primary(transaction, queue)
    moved = {"staged": first, "last": last, "now": transaction.now}
    lane_id = sending.find_lane(transaction, queue.queue_id, 0, sending.any_shard(transaction, queue.policy))
    begin, end = sending.take_positions(transaction, last - first + 1)
    transaction.run(SQL.move, {**moved, "lane_id": lane_id, "position": begin})
    sending.add_run(transaction, lane_id, begin, end, careful=False)


def _send(transaction: Transaction, queue: Queue, first: int, last: int) -> None:
    rows = transaction.rows(SQL.staged, {"first": first, "last": last})
    drafts = [
        (payload, content_type, PLAIN if options is None else _decode_options(options))
        for content_type, options, payload in rows
    ]
    sending.put(transaction, queue, drafts)


def discard(transaction: Transaction, name: str, key: str) -> None:
    queue = queues.ensure(transaction, name)
    bindings = {"queue_id": queue.queue_id, "key": key, "before": transaction.now - ABANDONED}
    for first, last in transaction.rows(SQL.dropped, bindings):
        transaction.run(SQL.drop, {"first": first, "last": last})
