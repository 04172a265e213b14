"""Queues that are spread over the hash slots of a cluster, one slot for each shard."""
