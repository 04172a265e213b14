"""Batches of a queue that is spread over slots: a batch belongs to the shard of its name. Members may be in other
shards, as they may be in other queues."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.domain.message import Draft, Options
from penstock.domain.results import BatchInfo, MessagePage
from penstock.engines.redis import rows, shards
from penstock.engines.redis.sharded.layout import following
from penstock.engines.redis.sharded.pipeline import ShardPipeline


class ShardBatches(ShardPipeline):
    def _owner(self, queue: str, batch: str) -> str:
        layout = self.layout(queue)
        return queue if layout is None else layout.owner(batch)

    @following
    def batch_mark(self, queue: str, name: str, opens: bool) -> int:
        return super().batch_mark(self._owner(queue, name), name, opens)

    @following
    def batch_open(
        self, queue: str, name: str, end: Draft | None, abort: Draft | None, after: int | None = None
    ) -> BatchInfo:
        layout = self.layout(queue)
        if layout is not None:
            drafts = [one for one in (end, abort) if one is not None]
            self.mix(layout, drafts)
        return _shown(queue, super().batch_open(self._owner(queue, name), name, end, abort, after))

    def _end_shard(self, queue: str, options: Options) -> str | None:
        layout = self.layout(shards.parsed(queue).queue)
        return None if layout is None or not layout.ordered else layout.names[layout.hashed(options.key or "")]

    @following
    def batch_start(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        return _shown(queue, super().batch_start(self._owner(queue, name), name, after))

    @following
    def batch_cancel(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        return _shown(queue, super().batch_cancel(self._owner(queue, name), name, after))

    @following
    def batch(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        return _shown(queue, super().batch(self._owner(queue, name), name, after))

    @following
    def batches(self, queue: str) -> list[BatchInfo]:
        layout = self.layout(queue)
        if layout is None:
            return super().batches(queue)
        found = [row for name in layout.names for row in self.database.read("batches", name)]
        return [rows.batch(queue, row) for row in sorted(found, key=lambda row: (row[-1], row[0]), reverse=True)]

    @following
    def cancelled(self, queue: str, group: str, positions: Sequence[int]) -> list[bool]:
        layout = self.layout(queue)
        if layout is None:
            return super().cancelled(queue, group, positions)
        found: dict[int, bool] = {}
        for shard, places in layout.at_positions(positions).items():
            own = [layout.places[shard].inner(positions[at]) for at in places]
            found.update(zip(places, super().cancelled(layout.names[shard], group, own), strict=True))
        return [found[at] for at in range(len(positions))]

    @following
    def members(self, queue: str, name: str, number: int | None, limit: int, after: str | None) -> MessagePage:
        page = super().members(self._owner(queue, name), name, number, limit, after)
        found = []
        for one in page.messages:
            place = shards.parsed(one.queue or queue)
            position = place.outer(one.position) if place.slots and one.position else one.position
            found.append(msgspec.structs.replace(one, queue=place.queue, position=position))
        return MessagePage(found, page.next)


def _shown(queue: str, batch: BatchInfo) -> BatchInfo:
    return msgspec.structs.replace(batch, queue=queue)
