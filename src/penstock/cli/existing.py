"""Whether there is a store yet. Opening a SQLite store makes its file and its tables; looking must make neither."""

from __future__ import annotations

import os

import apsw

from penstock import settings
from penstock.client.connecting import redacted
from penstock.domain.errors import NotFound
from penstock.engines.sqlite.connection import MEMORY, SQL

SQLITE_PREFIX = "sqlite:///"
ADVICE = "the first `penstock send` makes one, or name another with --url"


def check_there(chosen: settings.Settings) -> None:
    path = chosen.url.removeprefix(SQLITE_PREFIX)
    if path in (chosen.url, MEMORY):
        return
    where = f"{redacted(chosen.url)} (from {chosen.url_source})"
    if not os.path.exists(path):
        raise NotFound(f"there is no store at {where}: {ADVICE}")
    if not _has_tables(path):
        raise NotFound(f"there is a database but no store in it at {where}: {ADVICE}")


def _has_tables(path: str) -> bool:
    try:
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            return bool(connection.execute(SQL.has_schema).get)
        finally:
            connection.close()
    except apsw.Error:
        # Not a database, locked, unreadable: opening the store will say so better.
        return True
