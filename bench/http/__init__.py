"""The HTTP door against the Redis-protocol door of the same server, in one run."""
