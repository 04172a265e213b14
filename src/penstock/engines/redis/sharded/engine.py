"""The engine of a cluster: queues in one slot, and queues that are spread over one slot for each of their shards."""

from __future__ import annotations

from penstock.engines.redis.sharded.batches import ShardBatches


class ShardedEngine(ShardBatches):
    """Every verb of a spread queue is a call to the shard that the message belongs to, or to each shard."""
