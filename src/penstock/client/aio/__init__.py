"""The asynchronous client. `call`, `coalescer`, `executor`, `watcher`, `producer` and `connection` are written by hand;
the rest is generated from the synchronous client by `scripts/twin.py`."""
