"""A PostgreSQL store, and what its consumers get."""

from tests.engines.postgres.fixtures import postgres_url, queue, store, watcher

__all__ = ["postgres_url", "queue", "store", "watcher"]
