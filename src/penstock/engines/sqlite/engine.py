"""The SQLite engine: the queue over positions on one file."""

from __future__ import annotations

import random as random_module
import time
from collections.abc import Callable

from penstock.domain.results import Check
from penstock.domain.validation import check_seconds
from penstock.engines.contract import Capabilities
from penstock.engines.positional.engine import PositionalEngine
from penstock.engines.sqlite import doctor, migration
from penstock.engines.sqlite.connection import SqliteDatabase
from penstock.engines.sqlite.notify import FileWatch


class SqliteEngine(PositionalEngine):
    name = "sqlite"
    capabilities = Capabilities(receives_lightly=False)
    database: SqliteDatabase

    def __init__(self, database: SqliteDatabase) -> None:
        watch = FileWatch(database)
        super().__init__(database, watch)
        database.on_commit = watch.committed

    def migrate(self) -> list[str]:
        return migration.migrate(self.database)

    def doctor(self) -> list[Check]:
        return doctor.examine(self.database)


def system_clock() -> int:
    return time.time_ns() // 1000


def open_sqlite(
    path: str,
    clock: Callable[[], int] = system_clock,
    random: Callable[[], float] = random_module.random,
    busy_seconds: float = 10,
) -> SqliteEngine:
    """Open the file; create it and its schema when they are missing."""
    check_seconds("busy_seconds", busy_seconds)
    engine = SqliteEngine(SqliteDatabase(path, clock, random, busy_seconds))
    try:
        engine.migrate()
    except BaseException:
        engine.close()
        raise
    return engine
