"""Fixtures for tests against PostgreSQL alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

import penstock
from penstock import Queue, Store
from tests.engines.postgres.server import fresh_database, remove_database

Begin = Callable[[Callable[[], Any]], Future[Any]]
WAITING = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


@pytest.fixture
def postgres_url() -> Iterator[str]:
    """A database of the test's own, with the schema in it."""
    url = fresh_database()
    yield url
    remove_database(url)


@pytest.fixture
def bare_postgres_url() -> Iterator[str]:
    """A database of the test's own, without the schema."""
    url = fresh_database(migrated=False)
    yield url
    remove_database(url)


@pytest.fixture
def store(postgres_url: str) -> Iterator[Store]:
    with penstock.connect(postgres_url) as store:
        yield store


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue("orders")


@pytest.fixture
def other(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A transaction of another client."""
    with psycopg.connect(postgres_url) as connection:
        yield connection


@pytest.fixture
def watcher(postgres_url: str) -> Iterator[psycopg.Connection]:
    """A connection that observes locks."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def begin(store: Store, watcher: psycopg.Connection) -> Iterator[Begin]:
    """Start a call in another thread; returns when one more session waits for a lock."""
    with ThreadPoolExecutor() as threads:

        def begin(call: Callable[[], Any]) -> Future[Any]:
            before = len(waiting(watcher))
            begun = threads.submit(call)
            ends = time.monotonic() + 60
            while len(waiting(watcher)) <= before and not begun.done():
                assert time.monotonic() < ends, "the call did not wait for anybody"
                time.sleep(0.005)
            return begun

        yield begin


def waiting(watcher: psycopg.Connection) -> list[int]:
    """The sessions that wait for a lock."""
    return [pid for (pid,) in watcher.execute(f"select pid {WAITING}").fetchall()]
