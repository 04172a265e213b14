"""The injected clock and random source."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from penstock.domain.timestamps import microseconds, to_time
from penstock.domain.validation import from_time

# A Thursday with a fraction of a second, so that rounding is noticed.
START = datetime(2026, 3, 5, 7, 11, 13, 170_019, tzinfo=UTC)


class Clock:
    """The engine's clock, which only the test advances."""

    def __init__(self, start: datetime = START) -> None:
        self._at = from_time("start", start)

    def __call__(self) -> int:
        return self._at

    @property
    def now(self) -> datetime:
        return to_time(self._at)

    def advance(self, *, seconds: float) -> None:
        self._at += microseconds(seconds)

    def move_to(self, moment: datetime) -> None:
        self._at = from_time("moment", moment)


class Chance:
    """A seeded random source, or a constant, so that a backoff can be computed."""

    def __init__(self) -> None:
        self.value: float | None = None
        self._random = Random(4_711)

    def __call__(self) -> float:
        return self._random.random() if self.value is None else self.value
