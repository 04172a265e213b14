"""Tests of PostgreSQL alone."""

from tests.engines.postgres.fixtures import bare_postgres_url, begin, other, postgres_url, queue, store, watcher

__all__ = ["bare_postgres_url", "begin", "other", "postgres_url", "queue", "store", "watcher"]
