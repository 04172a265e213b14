"""The maintenance pass: queue by queue, in short calls."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.domain.results import SweepReport
from penstock.engines.redis import notices, schedules
from penstock.engines.redis.shards import ShardsChanged

if TYPE_CHECKING:
    from penstock.engines.redis.engine import RedisEngine


def sweep(engine: RedisEngine) -> SweepReport:
    totals = [0] * 6
    for queue in engine.database.registered():
        # A queue that is deleted or spread meanwhile is left to the next sweep.
        with contextlib.suppress(ShardsChanged):
            for shard, name in enumerate(engine.parts(queue)):
                _sweep_part(engine, name, shard, totals)
    if any(totals):
        engine.database.publish()
    # Last, because a full server refuses sends: what was trimmed may make room for them.
    fired = schedules.fire(engine)
    reclaimed, promoted, expired, trimmed, purged, removed = totals
    return SweepReport(reclaimed, promoted, expired, fired, trimmed, purged, removed)


def _sweep_part(engine: RedisEngine, name: str, shard: int, totals: list[int]) -> None:
    """Sweep what is stored under a name, and add up what was done."""
    has_more = 1
    while has_more:
        *counts, removed, has_more = engine.database.write("sweep", name, random=engine.database.random())
        counts.append(0 if shard else removed)  # a consumer is registered in every shard
        totals[:] = (total + count for total, count in zip(totals, counts, strict=True))
    if engine.database.nodes.is_cluster:
        notices.deliver_pending(engine.database, name)
