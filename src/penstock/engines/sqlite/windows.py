"""Windows: how the pipeline reads. A stretch of positions that, once behind the horizon, always holds the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import GroupMisused, MissingExtra, RangeTrimmed
from penstock.domain.identity import made_id
from penstock.domain.message import BYTES, SYSTEM
from penstock.domain.observations import Part
from penstock.engines.sqlite import queues
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.queues import Group
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

if TYPE_CHECKING:
    import pyarrow

SQL = Statements("penstock.engines.sqlite", "sql/windows.sql")


def horizon(transaction: Transaction) -> int:
    """With one writer nothing can appear later behind the last position given out."""
    position: int = transaction.value(CONNECTION.last_position)
    return position


def window(transaction: Transaction, name: str, start: int, end: int, parts: int) -> list[Part]:
    queue = queues.get(transaction, name)
    if start < queue.trimmed_position and end > start:
        raise RangeTrimmed(
            f"positions {start + 1} to {min(end, queue.trimmed_position)} of queue {name!r} are past retention; "
            f"the log begins after {queue.trimmed_position}"
        )
    bindings = {"queue_id": queue.queue_id, "start": start, "end": min(end, horizon(transaction))}
    return _split(name, transaction.rows(SQL.ranges, bindings), parts)


def _split(queue: str, ranges: list[tuple[int, ...]], parts: int) -> list[Part]:
    """Pieces of like size, each of whole ranges; the last may be smaller."""
    total = sum(last - first + 1 for first, last in ranges)
    size = max(1, -(-total // max(1, parts)))
    pieces: list[Part] = []
    piece: list[tuple[int, int]] = []
    room = size
    for first, last in ranges:
        while first <= last:
            upto = min(last, first + room - 1)
            piece.append((first, upto))
            room -= upto - first + 1
            first = upto + 1
            if room == 0:
                pieces.append(Part(queue, tuple(piece), size))
                piece, room = [], size
    if piece:
        pieces.append(Part(queue, tuple(piece), size - room))
    return pieces


def read(transaction: Transaction, part: Part, batch_rows: int) -> Iterator[pyarrow.RecordBatch]:
    schema = arrow_schema()
    for first, last in part.ranges:
        for start in range(first, last + 1, batch_rows):
            bindings = {"first": start, "last": min(last, start + batch_rows - 1)}
            rows = transaction.rows(SQL.read, bindings)
            if rows:
                yield _record_batch(rows, part.queue, transaction.salt, schema)


def arrow_schema() -> pyarrow.Schema:
    """The columns of a window, the same for every engine."""
    pyarrow = _pyarrow()
    time = pyarrow.timestamp("us", tz="UTC")
    text = pyarrow.string()
    return pyarrow.schema(
        [
            pyarrow.field("position", pyarrow.int64(), nullable=False),
            pyarrow.field("id", text, nullable=False),
            pyarrow.field("queue", text, nullable=False),
            pyarrow.field("created_at", time, nullable=False),
            pyarrow.field("priority", pyarrow.int32(), nullable=False),
            pyarrow.field("shard", pyarrow.int32(), nullable=False),
            pyarrow.field("content_type", text, nullable=False),
            pyarrow.field("headers", text),
            pyarrow.field("expires_at", time),
            pyarrow.field("deadline_at", time),
            pyarrow.field("address", text),
            pyarrow.field("key", text),
            pyarrow.field("batch", text),
            pyarrow.field("created_by", text, nullable=False),
            pyarrow.field("available_at", time, nullable=False),
            pyarrow.field("payload", pyarrow.binary(), nullable=False),
        ]
    )


def _record_batch(rows: list[tuple[Any, ...]], queue: str, salt: int, schema: pyarrow.Schema) -> pyarrow.RecordBatch:
    pyarrow = _pyarrow()
    (
        positions, ids, created, priorities, shards, types, headers, expires, deadlines, addresses, keys, batches,
        creators, available, payloads,
    ) = zip(*rows, strict=True)  # fmt: skip
    columns = (
        positions,
        [one or made_id(at, salt, place) for one, at, place in zip(ids, created, positions, strict=True)],
        [queue] * len(rows),
        created,
        priorities,
        shards,
        [one or BYTES for one in types],
        headers,
        expires,
        deadlines,
        addresses,
        keys,
        batches,
        [one or SYSTEM for one in creators],
        [at if one is None else one for one, at in zip(available, created, strict=True)],
        payloads,
    )
    arrays = [pyarrow.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.record_batch(arrays, schema=schema)


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        raise MissingExtra("reading windows needs pyarrow: pip install 'penstock[spark]'") from None
    return pyarrow


def stream_position(transaction: Transaction, name: str, group_name: str) -> int | None:
    queue = queues.find(transaction, name)
    group = None if queue is None else queues.find_group(transaction, queue, group_name)
    return None if group is None else group.stream_position


def advance(transaction: Transaction, name: str, group_name: str, position: int) -> None:
    queue = queues.ensure(transaction, name)
    group = queues.ensure_group(transaction, queue, group_name)
    if group.stream_position is None and _is_leased(transaction, group, queue.policy.primary_group):
        raise GroupMisused(f"group {group_name!r} of queue {name!r} is received with leases: stream with another group")
    if group.stream_position is None or position > group.stream_position:
        place(transaction, group, position)


def _is_leased(transaction: Transaction, group: Group, primary: str | None) -> bool:
    return group.name == primary or bool(transaction.value(SQL.has_leased, {"group_id": group.group_id}))


def place(transaction: Transaction, group: Group, position: int) -> None:
    bindings = {"group_id": group.group_id, "position": position, "now": transaction.now}
    transaction.run(SQL.place_stream, bindings)
