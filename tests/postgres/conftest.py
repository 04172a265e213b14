"""Tests of what only PostgreSQL has."""

from tests.postgres.fixtures import bare_postgres_url, postgres_url

__all__ = ["bare_postgres_url", "postgres_url"]
