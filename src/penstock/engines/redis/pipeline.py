"""What the pipeline needs: windows, the sink and the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import InvalidInput
from penstock.domain.results import Part
from penstock.engines import marked_rows, sink_rows
from penstock.engines.contract import Mark, Table
from penstock.engines.redis import drafts, marks, record_batches, windows
from penstock.engines.redis.connection import RedisDatabase, pairs_of

if TYPE_CHECKING:
    import pyarrow

SINK = "sink"
# Messages that one call stages.
STAGED_AT_ONCE = 10_000


class PipelineCalls:
    database: RedisDatabase

    def epoch(self) -> str:
        """A random number that the first caller stores."""
        key = self.database.store_key
        self.database.command("HSETNX", key, "epoch", format(int(self.database.random() * (1 << 53)), "016x"))
        epoch: bytes = self.database.command("HGET", key, "epoch")
        return epoch.decode()

    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        if table == "dead_letters":
            return marked_rows.BEGINNING.mark
        return marks.last_row(self.database, queue, table).mark

    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        if table == "dead_letters":
            return marked_rows.BEGINNING.mark
        return marks.last_row(self.database, queue, table, trimmed=True).mark

    def mark_at(self, queue: str, at: int) -> Mark:
        return marks.last_row(self.database, queue, "messages", at=at).mark

    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        return windows.cut(self.database, queue, start, end, rows, size, table)

    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        return windows.window(self.database, queue, start, end, parts, table)

    def read(
        self, part: Part, batch_rows: int = 10_000, columns: Sequence[str] | None = None
    ) -> Iterator[pyarrow.RecordBatch]:
        return record_batches.read(self.database, part, batch_rows, columns)

    def stream_position(self, queue: str, group: str) -> Mark | None:
        """A cursor that the store keeps was restored with it, so its mark needs no time."""
        found = self.database.read("stream_position", queue, group=group)
        if not found:
            return None
        table: Table = "messages" if found[0] == b"messages" else "audit"
        return marks.at_number(self.database, queue, table, found[1]).mark

    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        if table == "dead_letters":
            raise InvalidInput("dead_letters are read as they are: a group has no place in them")
        reached = marked_rows.parse(mark)
        if self.database.has(queue):
            marks.check(self.database, queue, table, reached)
        self.database.write("advance", queue, group=group, number=reached.number, kind=marked_rows.kind_of(table))

    def unread_after(self, queue: str) -> dict[str, int]:
        found = self.database.read("unread_after", queue)
        return {name.decode(): after for name, after in zip(found[::2], found[1::2], strict=True)}

    # -- the sink --------------------------------------------------------------------------------------------------

    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        count = 0
        for batch in batches:
            sink_rows.check_batch(batch)
            for first in range(0, batch.num_rows, STAGED_AT_ONCE):
                given, payloads = drafts.packed(list(sink_rows.drafts(batch.slice(first, STAGED_AT_ONCE))))
                self.database.write("stage", queue, payloads, **given, key=key, part=part)
            count += batch.num_rows
        return count

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        random = self.database.random
        chance: dict[str, Any] = {"random": random(), "bits": int(random() * (1 << 48))}
        count: int | None = self.database.write("release", queue, key=key, parts=list(parts), **chance)
        return count

    def discard(self, queue: str, key: str) -> None:
        self.database.write("discard", queue, key=key)

    # -- the ledger ------------------------------------------------------------------------------------------------

    def ledger(self, kind: str, prefix: str = "") -> dict[str, str]:
        """Entries of the sink are kept with their queues, so that a release is one call."""
        keys = [self._ledger_key(kind)]
        if kind == SINK:
            keys += [f"{self.database.queue_key(name)}:sl" for name in self.database.registered()]
        found: dict[str, str] = {}
        for key in keys:
            pairs = pairs_of(self.database.command("HGETALL", key))
            found.update({name.decode(): value.decode() for name, value in pairs})
        return {name: value for name, value in sorted(found.items()) if name.startswith(prefix)}

    def record(
        self,
        kind: str,
        puts: Mapping[str, str],
        removes: Sequence[str] = (),
        expect: Mapping[str, str | None] | None = None,
    ) -> bool:
        expected = {name: False if value is None else value for name, value in (expect or {}).items()}
        key = self._ledger_key(kind)
        if kind == SINK:
            self._drop_releases(removes)
        return bool(self.database.store_call("record", key, puts=dict(puts), removes=list(removes), expect=expected))

    def _drop_releases(self, entries: Sequence[str]) -> None:
        for name in self.database.registered():
            own = [entry for entry in entries if entry.endswith(f"/{name}")]
            if own:
                self.database.command("HDEL", f"{self.database.queue_key(name)}:sl", *own)

    def _ledger_key(self, kind: str) -> str:
        return f"{self.database.store_key}:ledger:{kind}"
