"""Schedules: the rules are stored in the database, their ticks are computed here. One message per tick, however many
processes sweep: the statement that sends it advances the schedule."""

from __future__ import annotations

from penstock.domain.message import Draft
from penstock.domain.recurrence import CatchUp, Schedule, due_ticks, next_tick
from penstock.engines.postgres import rows
from penstock.engines.postgres.calls import SQL, Caller
from penstock.engines.postgres.dumpers import Numbers


class PostgresSchedules(Caller):
    def schedule(self, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp) -> Schedule:
        next_at = next_tick(cron, timezone, self._value(SQL.now_us))
        parameters = (name, cron, timezone, queue, rows.stored(draft), catch_up, next_at)
        return rows.schedule(self._rows(SQL.schedule_put, *parameters)[0])

    def schedules(self) -> list[Schedule]:
        return [rows.schedule(row) for row in self._rows(SQL.schedules)]

    def schedule_pause(self, name: str, paused: bool) -> Schedule:
        next_at = None
        for row in self._rows(SQL.find_schedule, name):
            next_at = None if paused else next_tick(row[1], row[2], self._value(SQL.now_us))
        with self._suggesting(name):
            return rows.schedule(self._rows(SQL.schedule_pause, name, paused, next_at)[0])

    def schedule_run(self, name: str) -> str:
        with self._suggesting(name):
            return str(self._changed(SQL.schedule_run, name))

    def unschedule(self, name: str) -> None:
        with self._suggesting(name):
            self._rows(SQL.unschedule, name)

    def _fire_schedules(self) -> int:
        """Send the messages of ticks that have come. Returns how many."""
        fired = 0
        due = self._rows(SQL.due_schedules)
        now = self._value(SQL.now_us) if due else 0
        for name, cron, timezone, _, _, catch_up, _, next_at, _ in due:
            ticks, following = due_ticks(cron, timezone, next_at, now, catch_up)
            fired += self._value(SQL.schedule_fire, name, next_at, Numbers(ticks), following)
        return fired
