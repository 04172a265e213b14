"""Penstock on Redis next to Redis Streams and job libraries, on one server that syncs every write, in one run."""
