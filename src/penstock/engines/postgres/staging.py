"""Messages put aside part by part, then sent all at once and only once: how many tasks send exactly once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.engines import outgoing
from penstock.engines.postgres import shapes
from penstock.engines.postgres.arrays import Payloads
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

if TYPE_CHECKING:
    import pyarrow

SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")


def stage(database: Database, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
    count = 0
    for batch in batches:
        outgoing.check_batch(batch)
        if batch.num_rows:
            count += _stage(database, queue, key, part, batch)
    return count


def _stage(database: Database, queue: str, key: str, part: str, batch: pyarrow.RecordBatch) -> int:
    pieces = outgoing.by_priority(batch)
    if pieces is not None and [priority for priority, _ in pieces] == [0]:
        has_types = "content_type" in batch.schema.names
        types = batch.column("content_type").to_pylist() if has_types else [None] * batch.num_rows
        payloads, options = batch.column("payload").to_pylist(), None
    else:
        drafts = list(outgoing.drafts(batch))
        payloads, types = [one[0] for one in drafts], [one[1] for one in drafts]
        options = shapes.options_json(drafts)
    return int(database.value(SQL.stage, (queue, key, part, Payloads(payloads), types, options)))


def release(database: Database, queue: str, key: str, parts: Sequence[str]) -> int | None:
    count: int | None = database.value(SQL.release_staged, (queue, key, list(parts)))
    return count
