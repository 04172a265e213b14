"""From a path and its settings to an engine."""

from __future__ import annotations

import random as random_module
import time
from collections.abc import Callable

from penstock.domain.times import check_seconds
from penstock.engines.sqlite.connection import Database
from penstock.engines.sqlite.engine import SqliteEngine


def system_clock() -> int:
    return time.time_ns() // 1000


def open_sqlite(
    path: str,
    clock: Callable[[], int] = system_clock,
    random: Callable[[], float] = random_module.random,
    busy_seconds: float = 10,
) -> SqliteEngine:
    """Open the file, making it and its schema when they are missing."""
    check_seconds("busy_seconds", busy_seconds)
    engine = SqliteEngine(Database(path, clock, random, busy_seconds))
    try:
        engine.migrate()
    except BaseException:
        engine.close()
        raise
    return engine
