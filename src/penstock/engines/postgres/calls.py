"""Calls of the functions of the schema, which is checked before the first call."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from penstock.domain.errors import NotFound
from penstock.domain.validation import nearest
from penstock.engines.postgres import migration
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.notify import Listener
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/queue.sql")


class Caller:
    def __init__(self, database: Database, watch: Listener) -> None:
        self.database = database
        self.watch = watch
        self._checking = threading.Lock()
        self._salt: int | None = None

    @property
    def salt(self) -> int:
        """A random number of the store, part of the ids that Penstock makes. Read when the schema is checked, before
        the first call."""
        if self._salt is None:
            with self._checking:
                if self._salt is None:
                    self.database.probe()
                    migration.check_server(self.database)
                    self._salt, _ = migration.check_schema(self.database)
        return self._salt

    def _rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        if self._salt is None:
            _ = self.salt
        return self.database.rows(statement, parameters)

    def _value(self, statement: str, *parameters: Any) -> Any:
        return self._rows(statement, *parameters)[0][0]

    def _changed(self, statement: str, *parameters: Any) -> Any:
        """The value of a call that may make something ready: clients of this process that wait look again."""
        value = self._value(statement, *parameters)
        self.watch.committed()
        return value

    @contextmanager
    def _suggesting(self, queue: str, name: str | None = None) -> Iterator[None]:
        """Add the nearest existing name to an error about a missing one. Without a second name, only `queue` can be
        missing."""
        try:
            yield
        except NotFound as error:
            kind = getattr(error.__cause__, "diag", None) and error.__cause__.diag.message_detail  # type: ignore[union-attr]
            if self.database.is_inside or kind not in ("queue", "group", "batch", "schedule"):
                raise
            wanted = queue if kind in ("queue", "schedule") or name is None else name
            known = [row[0] for row in self._rows(SQL.known_names, kind, kind, queue, kind, queue, kind)]
            raise NotFound(f"{error}{nearest(wanted, known)}") from None
