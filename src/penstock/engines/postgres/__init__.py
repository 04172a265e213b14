"""Messages in PostgreSQL: every verb is a function of the schema `penstock`, which any SQL client can call."""

from penstock.engines.postgres.embedded import open_embedded
from penstock.engines.postgres.engine import PostgresEngine
from penstock.engines.postgres.opening import open_postgres

__all__ = ["PostgresEngine", "open_embedded", "open_postgres"]
