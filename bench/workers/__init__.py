"""Workers with no-op handlers, beside those of peers: the overhead per message."""
