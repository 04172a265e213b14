"""Schedules: the rules are stored in the database, their ticks are computed here. One message per tick, however many
processes sweep: the statement that sends it advances the schedule."""

from __future__ import annotations

from penstock.domain.message import Draft
from penstock.domain.recurrence import CatchUp, Schedule, due_ticks, next_tick
from penstock.engines.postgres import rows
from penstock.engines.postgres.connection import Database
from penstock.engines.postgres.dumpers import Numbers
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/verbs.sql")


def put(
    database: Database, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp
) -> Schedule:
    next_at = next_tick(cron, timezone, database.value(SQL.now))
    parameters = (name, cron, timezone, queue, rows.stored(draft), catch_up, next_at)
    return rows.schedule(database.rows(SQL.schedule_put, parameters)[0])


def pause(database: Database, name: str, paused: bool) -> Schedule:
    row = database.row(SQL.find_schedule, (name,))
    next_at = None if row is None or paused else next_tick(row[1], row[2], database.value(SQL.now))
    return rows.schedule(database.rows(SQL.schedule_pause, (name, paused, next_at))[0])


def fire(database: Database) -> int:
    """Send what the ticks that have come ask for."""
    fired = 0
    due = database.rows(SQL.due_schedules)
    if due:
        now = database.value(SQL.now)
        for name, cron, timezone, _, _, catch_up, _, next_at, _ in due:
            ticks, following = due_ticks(cron, timezone, next_at, now, catch_up)
            fired += database.value(SQL.schedule_fire, (name, next_at, Numbers(ticks), following))
    return fired
