"""Schedules: cron rules that send messages."""

from __future__ import annotations

from typing import Protocol

from penstock.domain.message import Draft
from penstock.domain.recurrence import CatchUp, Schedule


class ScheduleContract(Protocol):
    """Schedules of the store, by name."""

    def schedule(self, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp) -> Schedule:
        """Create or replace a schedule; the first tick is the next one from now unless cron and time zone are
        unchanged."""

    def schedules(self) -> list[Schedule]:
        """All schedules by name."""

    def schedule_pause(self, name: str, paused: bool) -> Schedule:
        """Pause or resume; ticks missed while paused are not sent. NotFound for an unknown name."""

    def unschedule(self, name: str) -> None:
        """Remove a schedule; messages it sent stay. NotFound for an unknown name."""

    def schedule_run(self, name: str) -> str:
        """Send the schedule's message now, paused or not, and return its id; the ticks are not changed."""
