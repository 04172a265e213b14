"""Calls of the functions of the schema, which is checked before the first call."""

from __future__ import annotations

import threading
from typing import Any

from penstock.engines.postgres import migration
from penstock.engines.postgres.connection import Database


class Caller:
    def __init__(self, database: Database) -> None:
        self.database = database
        self._checking = threading.Lock()
        self._salt: int | None = None

    @property
    def salt(self) -> int:
        """A random number of the store, in the ids that Penstock makes. Known once the schema was looked at, which
        every first call does."""
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
