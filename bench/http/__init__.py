"""HTTP against the Redis protocol of the same server, in one run."""
