"""Engines from a URL and its settings."""

from __future__ import annotations

from typing import Any

from psycopg_pool import ConnectionPool

from penstock.domain.validation import check_integer, check_seconds
from penstock.engines.postgres.connection import Clock, Database, Random
from penstock.engines.postgres.engine import PostgresEngine


def open_postgres(
    url: str,
    clock: Clock | None = None,
    random: Random | None = None,
    pool_size: int = 10,
    busy_seconds: float = 10,
    prepare: bool = True,
    listen: bool = True,
    pool: ConnectionPool[Any] | None = None,
) -> PostgresEngine:
    """Open the store, without connecting yet. The schema is created by `migrate`.

    A `pool` of psycopg_pool is used instead of an own one, and stays open; its connections are switched to autocommit.
    """
    check_integer("pool_size", pool_size, 1, 1000)
    check_seconds("busy_seconds", busy_seconds, above=True)
    return PostgresEngine(Database(url, clock, random, pool_size, busy_seconds, prepare, pool), listen)
