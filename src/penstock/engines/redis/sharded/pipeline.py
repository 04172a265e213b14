"""Windows and the sink of a queue that is spread over slots. A mark has the mark of each shard, so that a shard that
was restored or promoted with loss is noticed, and every part of a window is read from the node of one shard."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from penstock.domain import refusals
from penstock.domain.results import Part
from penstock.engines import marked_rows, sink_rows
from penstock.engines.contract import Mark, Table
from penstock.engines.redis import drafts as draft_forms
from penstock.engines.redis import marks, shards, windows
from penstock.engines.redis.connection import pairs_of
from penstock.engines.redis.pipeline import SINK, STAGED_AT_ONCE
from penstock.engines.redis.sharded.inspection import ShardInspection
from penstock.engines.redis.sharded.layout import Layout, following, own_drafts

if TYPE_CHECKING:
    import pyarrow


class ReleaseCount(msgspec.Struct):
    """An entry of the ledger of a release."""

    count: int
    at: int


class ShardPipeline(ShardInspection):
    # -- marks -----------------------------------------------------------------------------------------------------

    @following
    def horizon(self, queue: str, table: Table = "messages") -> Mark:
        return _joined([super(ShardPipeline, self).horizon(name, table) for name in self._names(queue)])

    @following
    def earliest(self, queue: str, table: Table = "messages") -> Mark:
        return _joined([super(ShardPipeline, self).earliest(name, table) for name in self._names(queue)])

    @following
    def mark_at(self, queue: str, at: int) -> Mark:
        return _joined([super(ShardPipeline, self).mark_at(name, at) for name in self._names(queue)])

    @following
    def stream_position(self, queue: str, group: str) -> Mark | None:
        found = [super(ShardPipeline, self).stream_position(name, group) for name in self._names(queue)]
        return None if all(one is None for one in found) else _joined([one or 0 for one in found])

    @following
    def advance(self, queue: str, group: str, mark: Mark, table: Table = "messages") -> None:
        layout = self._layout_at(queue, mark)
        if layout is None:
            super().advance(queue, group, mark, table)
            return
        for name, own in zip(layout.names, _split(layout, mark), strict=True):
            super().advance(name, group, own, table)

    def _layout_at(self, queue: str, *marks: Mark) -> Layout | None:
        """A mark with several parts is of a queue that is spread, which this process may not know yet."""
        layout = self.layout(queue)
        if layout is None and any(isinstance(mark, str) and "," in mark for mark in marks):
            return self.learn(queue)
        return layout

    # -- windows ---------------------------------------------------------------------------------------------------

    @following
    def cut(
        self,
        queue: str,
        start: Mark,
        end: Mark,
        rows: int | None,
        size: int | None = None,
        table: Table = "messages",
    ) -> Mark:
        """Cut all shards at the same position."""
        layout = self._layout_at(queue, start, end)
        if layout is None:
            return super().cut(queue, start, end, rows, size, table)
        if size is not None and table != "messages":
            raise refusals.no_size(table)
        if table == "dead_letters":
            return end
        starts, ends = _split(layout, start), _split(layout, end)
        firsts = [marked_rows.parse(one).number for one in starts]
        lasts = [marked_rows.parse(one).number for one in ends]
        if rows is not None:
            rows_of = self._ranges_of if table == "messages" else self._entries_of(table)
            lasts = _cut(layout, rows_of, firsts, lasts, max(1, rows))
        if size is not None:
            lasts = _cut(layout, self._sizes_of, firsts, lasts, size)
        found = list(ends)
        for shard, name in enumerate(layout.names):
            if lasts[shard] <= firsts[shard]:
                found[shard] = starts[shard]
            elif lasts[shard] != marked_rows.parse(ends[shard]).number:
                found[shard] = marks.at_number(self.database, name, table, lasts[shard]).mark
        return _joined(found)

    def _ranges_of(self, name: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        for first, last in windows.ranges(self.database, name, start, end):
            yield from ((position, 1) for position in range(first, last + 1))

    def _entries_of(self, table: Table) -> Callable[[str, int, int], Iterator[tuple[int, int]]]:
        return lambda name, start, end: windows.entries(self.database, name, start, end, table)

    def _sizes_of(self, name: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        return windows.sizes(self.database, name, start, end)

    @following
    def window(self, queue: str, start: Mark, end: Mark, parts: int, table: Table = "messages") -> list[Part]:
        """Every shard has parts of its own, also where that makes more parts than were asked for."""
        layout = self._layout_at(queue, start, end)
        if layout is None:
            return super().window(queue, start, end, parts, table)
        spans = [*zip(layout.places, _split(layout, start), _split(layout, end), strict=True)]
        share = max(1, -(-parts // max(1, sum(first != last for _, first, last in spans))))
        found: list[Part] = []
        for place, first, last in spans:
            name = shards.shard_name(*place)
            for part in super().window(name, first, last, share, table):
                found.append(msgspec.structs.replace(part, queue=queue, witness=(place.shard, place.slots)))
        return found

    # -- the sink --------------------------------------------------------------------------------------------------

    def stage(self, queue: str, key: str, part: str, batches: Iterable[pyarrow.RecordBatch]) -> int:
        """Rows that may be in any shard are staged in the one of their part."""
        layout = self.learn(queue)
        if layout is None:
            return super().stage(queue, key, part, batches)
        count = 0
        for batch in batches:
            sink_rows.check_batch(batch)
            for first in range(0, batch.num_rows, STAGED_AT_ONCE):
                drafts = list(sink_rows.drafts(batch.slice(first, STAGED_AT_ONCE)))
                layout = self.mix(layout, drafts)
                for shard, places in self.routes(layout, drafts, f"{key}/{part}").items():
                    given, payloads = draft_forms.packed(own_drafts(drafts, places))
                    self.database.write(
                        "stage", layout.names[shard], payloads, **given, key=key, part=part, ordered=layout.ordered
                    )
            count += batch.num_rows
        return count

    def release(self, queue: str, key: str, parts: Sequence[str]) -> int | None:
        """Shard by shard. Each remembers that it has released the key, so that a release that was cut off is finished
        by the next, and sends nothing twice."""
        release = super().release
        found = self.each_shard(queue, lambda place: release(shards.shard_name(*place), key, parts))
        return None if all(one is None for one in found) else sum(one or 0 for one in found)

    @following
    def discard(self, queue: str, key: str) -> None:
        for name in self._names(queue):
            super().discard(name, key)

    def ledger(self, kind: str, prefix: str = "") -> dict[str, str]:
        """A release counts when every shard has made it."""
        found = super().ledger(kind, prefix)
        if kind != SINK:
            return found
        for queue in self.database.registered():
            layout = self.learn(queue)
            if layout is not None:
                found = {name: one for name, one in found.items() if not name.endswith(f"/{queue}")}
                found.update(self._releases(layout, prefix))
        return dict(sorted(found.items()))

    def _releases(self, layout: Layout, prefix: str) -> dict[str, str]:
        every: dict[str, list[ReleaseCount]] = {}
        for name in layout.names:
            for entry, value in pairs_of(self.database.command("HGETALL", f"{self.database.queue_key(name)}:sl")):
                every.setdefault(entry.decode(), []).append(msgspec.json.decode(value, type=ReleaseCount))
        return {
            entry: msgspec.json.encode(
                ReleaseCount(sum(one.count for one in found), max(one.at for one in found))
            ).decode()
            for entry, found in every.items()
            if len(found) == layout.count and entry.startswith(prefix)
        }

    def _drop_releases(self, entries: Sequence[str]) -> None:
        super()._drop_releases(entries)
        for queue in self.database.registered():
            own = [entry for entry in entries if entry.endswith(f"/{queue}")]
            layout = self.learn(queue) if own else None
            for name in () if layout is None else layout.names:
                self.database.command("HDEL", f"{self.database.queue_key(name)}:sl", *own)


def _joined(found: list[Mark]) -> Mark:
    """A queue in one slot has one mark."""
    if len(found) == 1:
        return found[0]
    return ",".join(map(str, found)) if any(found) else 0


def _split(layout: Layout, mark: Mark) -> list[Mark]:
    if mark == 0:
        return [0] * layout.count
    found = mark.split(",") if isinstance(mark, str) else []
    if len(found) != layout.count:
        raise refusals.mark_invalid(str(mark))
    return [int(one) if one.isdecimal() else one for one in found]


def _cut(
    layout: Layout,
    rows_of: Callable[[str, int, int], Iterator[tuple[int, int]]],
    firsts: list[int],
    lasts: list[int],
    room: int,
) -> list[int]:
    """Where each shard ends when rows are taken in the order of positions until they need more than the room. At least
    one row is taken."""
    upto = list(firsts)

    def rows_in(shard: int) -> Iterator[tuple[int, int, int]]:
        for number, weight in rows_of(layout.names[shard], firsts[shard], lasts[shard]):
            yield number, shard, weight

    streams = [rows_in(shard) for shard in range(layout.count)]
    is_first = True
    for number, shard, weight in heapq.merge(*streams):
        room -= weight
        if room < 0 and not is_first:
            return upto
        upto[shard], is_first = number, False
    return lasts
