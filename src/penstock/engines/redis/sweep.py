"""The maintenance pass: queue by queue, in short calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.results import SweepReport
from penstock.engines.redis import notices, schedules

if TYPE_CHECKING:
    from penstock.engines.redis.engine import RedisEngine


def sweep(engine: RedisEngine) -> SweepReport:
    totals = [0] * 6
    parts = [part for queue in engine.database.registered() for part in enumerate(engine.parts(queue))]
    for shard, name in parts:
        has_more = 1
        while has_more:
            *counts, removed, has_more = engine.database.write("sweep", name, random=engine.database.random())
            counts.append(0 if shard else removed)  # a consumer is registered in every shard
            totals = [total + count for total, count in zip(totals, counts, strict=True)]
        if engine.database.nodes.is_cluster:
            notices.deliver_pending(engine.database, name)
    if any(totals):
        engine.database.publish()
    # Last, because a full server refuses sends: what was trimmed may make room for them.
    fired = schedules.fire(engine)
    reclaimed, promoted, expired, trimmed, purged, removed = totals
    return SweepReport(reclaimed, promoted, expired, fired, trimmed, purged, removed)
