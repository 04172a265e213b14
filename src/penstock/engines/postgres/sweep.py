"""The sweep: queue by queue, each in transactions of its own, so that nobody waits long and progress is kept."""

from __future__ import annotations

from penstock.domain.results import SweepReport
from penstock.engines.postgres import prepared_write, schedules
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")


def sweep(database: Database) -> SweepReport:
    counts = {"promoted": 0, "reclaimed": 0, "expired": 0, "trimmed": 0, "purged": 0}
    removed: int = database.value(SQL.sweep_consumers)
    fired = schedules.fire(database)
    decided: int = database.value(SQL.decide)
    for (name,) in database.rows(SQL.queue_names):
        [(*numbers, deleted)] = database.rows(SQL.sweep_queue, (name, decided))
        for count, number in zip(counts, numbers, strict=True):
            counts[count] += number
        while deleted:
            deleted = database.value(SQL.delete_trimmed, (name,))
    prepared_write.finish(database)
    return SweepReport(fired=fired, removed_consumers=removed, **counts)
