"""Penstock's Redis-protocol server next to Redis Streams, both durable, in one run."""
