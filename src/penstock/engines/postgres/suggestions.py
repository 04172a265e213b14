"""Errors about missing names suggest the nearest existing one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.domain.errors import NotFound
from penstock.domain.validation import nearest
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")


@contextmanager
def suggesting(database: Database, queue: str, name: str | None = None) -> Iterator[None]:
    """Within it a name that was not found is looked for among those that are there. Without a second name, `queue` is
    the only one that may be wrong."""
    try:
        yield
    except NotFound as error:
        kind = getattr(error.__cause__, "diag", None) and error.__cause__.diag.message_detail  # type: ignore[union-attr]
        if database.is_inside or kind not in ("queue", "group", "batch", "schedule"):
            raise
        wanted = queue if kind in ("queue", "schedule") or name is None else name
        known = [row[0] for row in database.rows(SQL.known_names, (kind, kind, queue, kind, queue, kind))]
        raise NotFound(f"{error}{nearest(wanted, known)}") from None
