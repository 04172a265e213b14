"""The sink: messages are staged part by part, then sent all at once, exactly once however many tasks write.

They are staged in chunks, so that no work is done per message before the send. Large parts are not staged: see
`prepared_write`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain
from typing import TYPE_CHECKING, Any

from penstock.engines import sink_rows
from penstock.engines.postgres import prepared_write, rows
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.dumpers import Column, Payloads
from penstock.engines.statements import Statements

if TYPE_CHECKING:
    import pyarrow

SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")
# What a chunk holds at most, unless a single payload is larger.
CHUNK_ROWS = 10_000
CHUNK_BYTES = 16 * 1024 * 1024
# Messages with options are looked at one by one.
CAREFUL_ROWS = 1_000
# What a part has at least to be worth a prepared write, which waits for the disk three times.
LARGE_ROWS = 20_000
LARGE_BYTES = 16 * 1024 * 1024


def stage(database: Database, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
    first, rest = _beginning(iter(batches))
    count = ordinal = 0
    with nullcontext() if rest is None else prepared_write.prepared(database, queue, key, part) as write:
        for batch in chain(first, rest or ()):
            sink_rows.check_batch(batch)
            for payloads, longest, priority, kind, kinds, options in _chunks(batch):
                if write is not None and priority is not None:
                    write.write(payloads, longest, priority, kind, kinds)
                else:
                    chunk = (payloads, longest, priority, kind, kinds, options)
                    database.rows(SQL.stage_chunk, (queue, key, part, ordinal, *chunk))
                    ordinal += 1
            count += batch.num_rows
        if ordinal:
            database.rows(SQL.stage_part, (queue, key, part, ordinal))
    return count


def _beginning(
    batches: Iterator[pyarrow.RecordBatch],
) -> tuple[list[pyarrow.RecordBatch], Iterator[pyarrow.RecordBatch] | None]:
    """As much of a part as shows that it is large, and its rest; no rest when the part is small."""
    first: list[pyarrow.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        first.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= LARGE_ROWS or size >= LARGE_BYTES:
            return first, batches
    return first, None


def _chunks(batch: pyarrow.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """Payloads, the length of the longest, the priority and type of plain messages, or types and options."""
    pieces = sink_rows.by_priority(batch)
    if pieces is None:
        for piece, longest in _pieces(batch, CAREFUL_ROWS):
            drafts = list(sink_rows.drafts(piece))
            types = [draft[1] for draft in drafts]
            yield Payloads([draft[0] for draft in drafts]), longest, None, None, types, rows.options_json(drafts)
        return
    for priority, plain in pieces:
        for piece, longest in _pieces(plain, CHUNK_ROWS):
            yield Column(piece.column("payload")), longest, priority, *_types(piece), None


def _pieces(batch: pyarrow.RecordBatch, rows: int) -> Iterator[tuple[pyarrow.RecordBatch, int]]:
    from pyarrow import compute

    if batch.num_rows:
        longest = compute.max(compute.binary_length(batch.column("payload"))).as_py()
        rows = max(1, min(rows, CHUNK_BYTES // max(1, longest)))
        for first in range(0, batch.num_rows, rows):
            yield batch.slice(first, rows), longest


def _types(batch: pyarrow.RecordBatch) -> tuple[str | None, list[str | None] | None]:
    """One content type for all, or one for each."""
    if "content_type" not in batch.schema.names:
        return None, None
    column = batch.column("content_type")
    found = column.unique()
    return (found[0].as_py(), None) if len(found) == 1 else (None, column.to_pylist())


def release(database: Database, queue: str, key: str, parts: Sequence[str]) -> int | None:
    count: int | None = database.value(SQL.release_staged, (queue, key, list(parts)))
    prepared_write.finish(database, queue, key)
    return count


def discard(database: Database, queue: str, key: str) -> None:
    database.rows(SQL.discard_staged, (queue, key))
    prepared_write.finish(database, queue, key)
