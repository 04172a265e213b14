"""Messages in PostgreSQL: every verb is a function of the schema `penstock`, which any SQL client can call."""

from penstock.engines.postgres.connect import open_postgres
from penstock.engines.postgres.embedded_server import open_embedded
from penstock.engines.postgres.engine import PostgresEngine
from penstock.engines.postgres.migration import script as schema_script

__all__ = ["PostgresEngine", "open_embedded", "open_postgres", "schema_script"]
