"""Counters of a group over time, with rates and the estimated time to drain."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from penstock.domain.results import GroupStats

# Length of a ring, and the least distance of its points: pages opened between two samples add none.
RECENT_SECONDS, RECENT_STEP_SECONDS = 300.0, 0.5
LONG_SECONDS, LONG_STEP_SECONDS = 14_400.0, 60.0
# Rates are taken over at least this time, so that they do not jump when the sampling gets faster.
RATE_SECONDS = 10.0
DRAIN_SECONDS = 30.0
# Points farther apart are not connected: samples between them are missing.
GAP_SECONDS, GAP_STEPS = 60.0, 3


class Point(NamedTuple):
    """A sample of a group. `finished`, `failed` and `died` only ever grow; `sent` falls with a flush or a seek.
    `failed` counts attempts, `died` messages that ended without success, unless they were cancelled."""

    at: float
    waiting: float
    in_progress: float
    held: float
    dead: float
    oldest: float
    sent: float
    finished: float
    failed: float
    died: float


def point(at: float, stats: GroupStats) -> Point:
    waiting = stats.available + stats.redo
    sent = stats.held + waiting + stats.in_progress + sum(stats.outcomes.values())
    finished = sum(stats.endings.values())
    died = finished - stats.endings.get("succeeded", 0) - stats.endings.get("cancelled", 0)
    age = stats.oldest_age_seconds or 0.0
    return Point(
        at, waiting, stats.in_progress, stats.held, stats.dead, age, sent, finished, stats.failed_attempts, died
    )


class Ring:
    """The points of a period, as plain numbers to save memory: a server may have thousands of groups."""

    WIDTH = len(Point._fields)

    def __init__(self, span_seconds: float, step_seconds: float) -> None:
        self.span_seconds = span_seconds
        self.step_seconds = step_seconds
        self._times = array("d")
        self._numbers = array("d")

    def add(self, new: Point) -> None:
        if self._times and new.at < self._times[-1]:
            # The clock was set back: earlier points no longer fit on the axis.
            del self._times[:], self._numbers[:]
        if self._times and new.at - self._times[-1] < self.step_seconds:
            return
        self._times.append(new.at)
        self._numbers.extend(new)
        old = self._first()
        if old > len(self._times) // 2:
            del self._times[:old], self._numbers[: old * self.WIDTH]

    def points(self) -> Iterator[Point]:
        """Oldest first."""
        return (self._at(place) for place in range(self._first(), len(self._times)))

    def back(self, seconds: float) -> Point | None:
        """The latest point that is older than the last one by at least this time, else the oldest."""
        if not self._times:
            return None
        place = bisect_left(self._times, self._times[-1] - seconds)
        is_older = place == len(self._times) or self._times[place] > self._times[-1] - seconds
        return self._at(max(self._first(), place - 1 if is_older else place))

    @property
    def last(self) -> Point | None:
        return self._at(len(self._times) - 1) if self._times else None

    def _first(self) -> int:
        return bisect_left(self._times, self._times[-1] - self.span_seconds) if self._times else 0

    def _at(self, place: int) -> Point:
        return Point._make(self._numbers[place * self.WIDTH : (place + 1) * self.WIDTH])


class Rates(NamedTuple):
    """Per second: messages sent and finished, attempts failed; None until there are two samples."""

    sent: float | None
    finished: float | None
    failed: float | None


NO_RATES = Rates(None, None, None)


class Series:
    """A group's points of the last minutes, and one for each minute of the last hours."""

    def __init__(self) -> None:
        self.recent = Ring(RECENT_SECONDS, RECENT_STEP_SECONDS)
        self.long = Ring(LONG_SECONDS, LONG_STEP_SECONDS)

    def add(self, new: Point) -> None:
        self.recent.add(new)
        self.long.add(new)

    def rates(self, seconds: float = RATE_SECONDS) -> Rates:
        last, before = self.recent.last, self.recent.back(seconds)
        if last is None or before is None or last.at <= before.at:
            return NO_RATES
        return between(before, last)

    def grown(self, name: str) -> int:
        """The growth of a counter in the last minutes."""
        last, before = self.recent.last, self.recent.back(RECENT_SECONDS)
        if last is None or before is None:
            return 0
        grown: float = getattr(last, name) - getattr(before, name)
        return max(0, round(grown))

    def drain_seconds(self) -> float | None:
        """The estimated time to drain at the rates of the last half minute; infinite if the backlog does not shrink."""
        last, rates = self.recent.last, self.rates(DRAIN_SECONDS)
        if last is None or rates.finished is None or rates.sent is None:
            return None
        if last.waiting == 0:
            return 0.0
        shrinks_by = rates.finished - rates.sent
        return last.waiting / shrinks_by if shrinks_by > 0 else float("inf")


def between(before: Point, after: Point) -> Rates:
    """Rates are not negative, also after a flush or a seek."""
    seconds = after.at - before.at

    def per_second(name: str) -> float:
        grown: float = getattr(after, name) - getattr(before, name)
        return max(0.0, grown) / seconds

    return Rates(per_second("sent"), per_second("finished"), per_second("failed"))


# A row of a chart: time, backlog, in progress, and rates. None interrupts a line.
CHART_COLUMNS = ("at", "waiting", "in_progress", "oldest", "sent", "finished", "failed")
ChartRow = list[float | None]


def chart_rows(ring: Ring) -> list[ChartRow]:
    points = list(ring.points())
    rows: list[ChartRow] = []
    before = 0
    for place, one in enumerate(points):
        while before + 1 < place and one.at - points[before + 1].at >= RATE_SECONDS:
            before += 1
        if place and one.at - points[place - 1].at > max(GAP_SECONDS, GAP_STEPS * ring.step_seconds):
            rows.append([points[place - 1].at + 0.001, *[None] * (len(CHART_COLUMNS) - 1)])
        rows.append(_chart_row(points[before], one))
    return rows


def latest_row(ring: Ring) -> ChartRow | None:
    """The last point, for a chart that is already drawn."""
    last, before = ring.last, ring.back(RATE_SECONDS)
    return None if last is None or before is None else _chart_row(before, last)


def _chart_row(before: Point, one: Point) -> ChartRow:
    """Leave out rates until they cover enough time."""
    rates: Sequence[float | None] = between(before, one) if one.at - before.at >= RATE_SECONDS else NO_RATES
    numbers = (one.waiting, one.in_progress, one.oldest, *rates)
    return [round(one.at, 3), *(None if number is None else round(number, 3) for number in numbers)]
