"""A database with the schema of Penstock, an SQL session, and a store on the same database."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import penstock
from tests.engines.postgres.fixtures import bare_postgres_url, postgres_url

__all__ = ["bare_postgres_url", "postgres_url"]


class Sql:
    """A session of its own: `sql("select %s", 1)` gives the rows, or nothing for a statement without any."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self.connection = connection

    def __call__(self, statement: str, *values: object) -> list[Any]:
        # Bytes, because a statement put together by a test is no literal to the type checker.
        cursor = self.connection.execute(statement.encode(), values or None)
        return cursor.fetchall() if cursor.description else []


def connect(url: str, **options: Any) -> psycopg.Connection:
    return psycopg.connect(url, autocommit=True, **options)


def take_and(sql: Sql, call: str, client: str = "c") -> None:
    """The next message of the schema jobs, dequeued and settled by one client with the defaults of the call."""
    [(message_id,)] = sql("select msg_id from jobs.dequeue(%s)", client)
    sql(f"call jobs.message_{call}(%s, %s)", message_id, client)


def heard(connection: psycopg.Connection, count: int) -> list[tuple[str, str]]:
    """The next notifications; a missing one shows as a shorter list after a while."""
    return [(each.channel, each.payload) for each in connection.notifies(timeout=60, stop_after=count)]


@pytest.fixture
def sql(postgres_url: str) -> Iterator[Sql]:
    with connect(postgres_url) as connection:
        yield Sql(connection)


@pytest.fixture
def store(postgres_url: str) -> Iterator[penstock.Store]:
    store = penstock.connect(postgres_url)
    yield store
    store.close()
