"""The sink: messages staged part by part, then sent all at once and only once, by many tasks.

A stage is a range of staged rows, written in one transaction. A release moves the stages of the given parts to the log,
in one transaction with its ledger entry; stages of failed tasks are dropped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.domain.message import PLAIN, Draft, Options, check_size
from penstock.domain.timestamps import SECOND
from penstock.engines import sink_rows
from penstock.engines.positional import ledger, log, messages, queues
from penstock.engines.positional.database import PositionalDatabase, Transaction
from penstock.engines.positional.queues import StoredQueue

if TYPE_CHECKING:
    import pyarrow

KIND = "sink"
# Stages that were not released after this long belong to a job that has ended.
ABANDONED = 24 * 3600 * SECOND
_encode_options = msgspec.msgpack.Encoder().encode
_decode_options = msgspec.msgpack.Decoder(Options).decode


def stage(database: PositionalDatabase, name: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
    count = 0
    for batch in batches:
        sink_rows.check_batch(batch)
        if batch.num_rows:
            stages = list(_stages(batch))
            with database.write(name) as transaction:
                queue = queues.ensure(transaction, name)
                for priority, rows in stages:
                    _stage(transaction, queue, key, part, rows, priority)
            count += batch.num_rows
    return count


def _stages(batch: pyarrow.RecordBatch) -> Iterator[tuple[int | None, list[tuple[Any, ...]]]]:
    """Rows of one priority that need no options, with that priority; or rows with options of their own."""
    pieces = sink_rows.by_priority(batch)
    if pieces is None:
        yield None, [_row(one) for one in sink_rows.drafts(batch)]
        return
    for priority, piece in pieces:
        types = piece.column("content_type").to_pylist() if "content_type" in piece.schema.names else repeat(None)
        rows = zip(types, repeat(_priority_options(priority)), piece.column("payload").to_pylist(), strict=False)
        yield priority, list(rows)


def _priority_options(priority: int) -> bytes | None:
    """Options for a queue whose policy applies to every message."""
    return None if priority == 0 else _encode_options(Options(priority=priority))


def _row(one: Draft) -> tuple[Any, ...]:
    payload, content_type, options = one
    return content_type, None if options == PLAIN else _encode_options(options), payload


def _stage(
    transaction: Transaction, queue: StoredQueue, key: str, part: str, rows: list[tuple[Any, ...]], priority: int | None
) -> None:
    check_size(max((row[2] for row in rows), key=len), queue.policy.max_payload_bytes)
    first: int = transaction.value("next_staged_id")
    last = first + len(rows) - 1
    transaction.run_many("stage_message", ((staged_id, *row) for staged_id, row in enumerate(rows, first)))
    stage_row = {"first": first, "last": last, "queue_id": queue.queue_id, "key": key, "part": part}
    transaction.run("record_stage", {**stage_row, "priority": priority, "now": transaction.now})


def release(transaction: Transaction, name: str, key: str, parts: Sequence[str]) -> int | None:
    """None if the ledger has the entry: these messages were sent before."""
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


def _send_part(transaction: Transaction, queue: StoredQueue, key: str, part: str) -> int:
    bindings = {"queue_id": queue.queue_id, "key": key, "part": part}
    count = 0
    for first, last, priority in transaction.rows("stages_of_part", bindings):
        if priority is not None and messages.is_plainly_sent(queue.policy):
            _move(transaction, queue, first, last, priority)
        else:
            _send(transaction, queue, first, last)
        count += last - first + 1
    return count


def _move(transaction: Transaction, queue: StoredQueue, first: int, last: int, priority: int) -> None:
    """Move staged rows to the log with one statement."""
    queues.ensure_primary(transaction, queue)
    moved = {"staged": first, "last": last, "now": transaction.now}
    lane_id = log.find_lane(transaction, queue.queue_id, priority, log.any_shard(transaction, queue.policy))
    begin, end = log.take_positions(transaction, queue.queue_id, last - first + 1)
    transaction.run("move_staged", {**moved, "lane_id": lane_id, "position": begin})
    log.add_run(transaction, lane_id, begin, end, needs_checks=False)


def _send(transaction: Transaction, queue: StoredQueue, first: int, last: int) -> None:
    rows = transaction.rows("staged_messages", {"first": first, "last": last})
    drafts = [
        (payload, content_type, PLAIN if options is None else _decode_options(options))
        for content_type, options, payload in rows
    ]
    messages.put(transaction, queue, drafts)


def discard(transaction: Transaction, name: str, key: str) -> None:
    queue = queues.ensure(transaction, name)
    bindings = {"queue_id": queue.queue_id, "key": key, "before": transaction.now - ABANDONED}
    for first, last in transaction.rows("drop_stages", bindings):
        transaction.run("drop_staged", {"first": first, "last": last})
