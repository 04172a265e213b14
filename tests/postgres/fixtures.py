"""Fixtures for tests against PostgreSQL alone."""

from __future__ import annotations

import pytest

from tests.postgres.server import fresh_database


@pytest.fixture
def postgres_url() -> str:
    """A database of the test's own, with the schema in it."""
    return fresh_database()


@pytest.fixture
def bare_postgres_url() -> str:
    """A database of the test's own, without the schema."""
    return fresh_database(migrated=False)
