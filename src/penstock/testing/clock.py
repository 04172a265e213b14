"""A clock that only moves when a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock.domain.timestamps import microseconds, to_time
from penstock.domain.validation import from_time


class Clock:
    """A store's clock: `memory_store(clock)`, then `clock.advance(hours=1)`."""

    def __init__(self, start: datetime | None = None) -> None:
        self._at = from_time("start", datetime.now(UTC) if start is None else start)

    def __call__(self) -> int:
        return self._at

    @property
    def now(self) -> datetime:
        return to_time(self._at)

    def advance(self, *, seconds: float = 0, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        passed = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        self._at += microseconds(passed.total_seconds())

    def move_to(self, moment: datetime) -> None:
        self._at = from_time("moment", moment)
