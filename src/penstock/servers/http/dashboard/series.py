"""What a group's counters were over time, and what follows from it: rates, and when the backlog will be gone."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple

from penstock.domain.observations import GroupStats

RECENT_POINTS = 300
LONG_POINTS = 240
LONG_STEP_SECONDS = 60.0
RATE_SECONDS = 10.0
DRAIN_SECONDS = 30.0


class Point(NamedTuple):
    """One look at a group. `sent`, `finished` and `failed` only ever grow, but for a flush, a redrive or a seek."""

    at: float
    waiting: float
    in_progress: float
    held: float
    dead: float
    oldest: float
    sent: float
    finished: float
    failed: float


def point(at: float, stats: GroupStats) -> Point:
    unsuccessful = sum(stats.outcomes.values()) - stats.outcomes.get("succeeded", 0)
    finished = stats.done + unsuccessful
    waiting = stats.available + stats.redo
    sent = stats.held + waiting + stats.in_progress + finished
    age = stats.oldest_age_seconds or 0.0
    return Point(at, waiting, stats.in_progress, stats.held, stats.dead, age, sent, finished, unsuccessful)


class Ring:
    """The last points, as plain numbers: a server may have thousands of groups."""

    WIDTH = len(Point._fields)

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity * self.WIDTH
        self._numbers = array("d")

    def add(self, new: Point) -> None:
        self._numbers.extend(new)
        if len(self._numbers) >= 2 * self._capacity:
            del self._numbers[: len(self._numbers) - self._capacity]

    def points(self) -> Iterator[Point]:
        """Oldest first."""
        first = max(0, len(self._numbers) - self._capacity)
        for start in range(first, len(self._numbers), self.WIDTH):
            yield Point._make(self._numbers[start : start + self.WIDTH])

    def back(self, seconds: float) -> Point | None:
        """The latest point that is at least so much older than the last one, or the oldest there is."""
        first = max(0, len(self._numbers) - self._capacity)
        found = None
        for start in range(len(self._numbers) - self.WIDTH, first - 1, -self.WIDTH):
            found = start
            if self._numbers[-self.WIDTH] - self._numbers[start] >= seconds:
                break
        return None if found is None else Point._make(self._numbers[found : found + self.WIDTH])

    @property
    def last(self) -> Point | None:
        return Point._make(self._numbers[-self.WIDTH :]) if self._numbers else None


class Rates(NamedTuple):
    """Messages per second; None until there are two looks to compare."""

    sent: float | None
    finished: float | None
    failed: float | None


NO_RATES = Rates(None, None, None)


class Series:
    """A group's recent points, and one for each of the last minutes."""

    def __init__(self) -> None:
        self.recent = Ring(RECENT_POINTS)
        self.long = Ring(LONG_POINTS)
        self._long_at = float("-inf")

    def add(self, new: Point) -> None:
        self.recent.add(new)
        if new.at - self._long_at >= LONG_STEP_SECONDS:
            self._long_at = new.at
            self.long.add(new)

    def rates(self, seconds: float = RATE_SECONDS) -> Rates:
        last, before = self.recent.last, self.recent.back(seconds)
        if last is None or before is None or last.at <= before.at:
            return NO_RATES
        return between(before, last)

    def drain_seconds(self) -> float | None:
        """Until nothing waits, if it goes on like in the last half minute; infinite when it does not shrink."""
        last, rates = self.recent.last, self.rates(DRAIN_SECONDS)
        if last is None or rates.finished is None or rates.sent is None:
            return None
        if last.waiting == 0:
            return 0.0
        shrinks_by = rates.finished - rates.sent
        return last.waiting / shrinks_by if shrinks_by > 0 else float("inf")


def between(before: Point, after: Point) -> Rates:
    """A counter that went back (a flush, a redrive) gives no rate below zero."""
    seconds = after.at - before.at

    def per_second(name: str) -> float:
        grown: float = getattr(after, name) - getattr(before, name)
        return max(0.0, grown) / seconds

    return Rates(per_second("sent"), per_second("finished"), per_second("failed"))


# What a chart draws: the time, what waits, what is in progress, and the rates since the point before.
CHART_COLUMNS = ("at", "waiting", "in_progress", "oldest", "sent", "finished", "failed")


def chart_rows(ring: Ring) -> list[list[float]]:
    rows: list[list[float]] = []
    before: Point | None = None
    for one in ring.points():
        if before is not None and one.at > before.at:
            rows.append(chart_row(before, one))
        before = one
    return rows


def chart_row(before: Point, one: Point) -> list[float]:
    rates = between(before, one)
    numbers = (one.waiting, one.in_progress, one.oldest, rates.sent, rates.finished, rates.failed)
    return [round(one.at, 3), *(round(number or 0.0, 3) for number in numbers)]
