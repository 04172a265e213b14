"""The asynchronous client. `gathering`, `grouping`, `watching`, `calling`, `producer` and `connecting` are written by
hand; the rest is the synchronous client with `async` and `await`, written by `scripts/twin.py`."""
