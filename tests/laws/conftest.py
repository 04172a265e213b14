"""A database with the schema of Penstock, for the laws that only PostgreSQL can break."""

from tests.engines.postgres.fixtures import postgres_url, queue, store
from tests.engines.postgres.sql.conftest import sql

__all__ = ["postgres_url", "queue", "sql", "store"]
