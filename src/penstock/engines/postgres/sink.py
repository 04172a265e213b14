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
from penstock.engines.postgres.calls import SQL, Caller
from penstock.engines.postgres.dumpers import Column, Payloads

if TYPE_CHECKING:
    import pyarrow

# The limits of a chunk, unless a single payload is larger.
CHUNK_ROWS = 10_000
CHUNK_BYTES = 16 * 1024 * 1024
# Rows of a chunk whose messages have options, which are converted one by one.
CAREFUL_ROWS = 1_000
# The least size of a part that is worth a prepared write, which waits for the disk three times.
LARGE_ROWS = 20_000
LARGE_BYTES = 16 * 1024 * 1024


class PostgresSink(Caller):
    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        _ = self.salt
        first, rest = _beginning(iter(batches))
        count = ordinal = 0
        with nullcontext() if rest is None else prepared_write.prepared(self.database, queue, key, part) as write:
            for batch in chain(first, rest or ()):
                sink_rows.check_batch(batch)
                for payloads, longest, priority, kind, kinds, options in _chunks(batch):
                    if write is not None and priority is not None:
                        write.write(payloads, longest, priority, kind, kinds)
                    else:
                        chunk = (payloads, longest, priority, kind, kinds, options)
                        self._rows(SQL.stage_chunk, queue, key, part, ordinal, *chunk)
                        ordinal += 1
                count += batch.num_rows
            if ordinal:
                self._rows(SQL.stage_part, queue, key, part, ordinal)
        return count

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        count: int | None = self._value(SQL.release_staged, queue, key, list(parts))
        prepared_write.finish(self.database, queue, key)
        self.watch.committed()
        return count

    def discard(self, queue: str, key: str) -> None:
        self._rows(SQL.discard_staged, queue, key)
        prepared_write.finish(self.database, queue, key)


def _beginning(
    batches: Iterator[pyarrow.RecordBatch],
) -> tuple[list[pyarrow.RecordBatch], Iterator[pyarrow.RecordBatch] | None]:
    """The first batches of a part, up to the size of a large one, and the rest; None when the part is small."""
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
