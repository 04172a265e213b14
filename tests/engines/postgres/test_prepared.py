"""Statements stay prepared, and clients recover when the server has forgotten them."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from psycopg_pool import ConnectionPool

import penstock
from penstock import Store
from penstock.domain.message import draft
from tests.architecture.sources import python_files

PREPARED = "select count(*) from pg_prepared_statements where name like 'penstock%'"


@pytest.fixture
def pool(postgres_url: str) -> Iterator[ConnectionPool]:
    """One connection, so that it is known which one a call uses."""
    with ConnectionPool(postgres_url, min_size=1, max_size=1, kwargs={"autocommit": True}) as pool:
        yield pool


@pytest.fixture
def store(postgres_url: str, pool: ConnectionPool) -> Iterator[Store]:
    with penstock.connect(postgres_url, pool=pool) as store:
        yield store


def prepared(pool: ConnectionPool) -> int:
    with pool.connection() as connection:
        row = connection.execute(PREPARED).fetchone()
    assert row is not None
    return int(row[0])


def test_a_verb_is_prepared_once(pool: ConnectionPool, store: Store) -> None:
    queue = store.queue("orders")
    queue.send(b"first")
    before = prepared(pool)
    for number in range(10):
        queue.send(f"{number}".encode())
    assert before >= 1
    assert prepared(pool) == before


def test_a_statement_that_the_server_forgot_is_run_without_a_name(pool: ConnectionPool, store: Store) -> None:
    queue = store.queue("orders")
    queue.send(b"first")
    with pool.connection() as connection:
        connection.execute("deallocate all")
    queue.send(b"second")
    assert [delivery.payload for delivery in queue.receive(limit=10)] == [b"first", b"second"]


def test_calls_made_together_get_over_a_statement_that_the_server_forgot(pool: ConnectionPool, store: Store) -> None:
    queue = store.queue("orders")
    queue.send(b"first")
    with pool.connection() as connection:
        connection.execute("deallocate all")
    engine = queue.engine
    engine.together([lambda: engine.send("orders", [draft(b"second")], None) for _ in range(2)])
    assert [delivery.payload for delivery in queue.receive(limit=10)] == [b"first", b"second", b"second"]


def test_an_answer_of_another_shape_is_asked_for_again(pool: ConnectionPool, store: Store) -> None:
    queue = store.queue("orders", lease_seconds=7)
    assert queue.policy().lease_seconds == 7
    with pool.connection() as connection:
        connection.execute("alter table penstock.queue add column later text")
    assert queue.policy().lease_seconds == 7


def test_behind_a_pooler_nothing_is_prepared(postgres_url: str, pool: ConnectionPool) -> None:
    with penstock.connect(postgres_url, pool=pool, prepare=False, listen=False) as store:
        queue = store.queue("orders")
        queue.send(b"first")
        assert [delivery.payload for delivery in queue.receive()] == [b"first"]
    assert prepared(pool) == 0


def test_one_module_uses_what_psycopg_does_not_document() -> None:
    undocumented = re.compile(
        r"^(?:from|import) psycopg(?:_pool)?\._|^from psycopg import .*\bgenerators\b", re.MULTILINE
    )
    users = [path.name for path in python_files("src") if undocumented.search(path.read_text(encoding="utf-8"))]
    assert users == ["prepared_statements.py"]
