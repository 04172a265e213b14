"""Ways to use a store: the same few calls in Python, asynchronous Python, the Redis protocol, HTTP and SQL."""
