"""A PostgreSQL store, and the messages that its consumers receive."""

from tests.engines.postgres.fixtures import postgres_url, queue, store, watcher

__all__ = ["postgres_url", "queue", "store", "watcher"]
