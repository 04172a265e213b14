"""How fast a queue moves, from counts taken at two moments: rates, and when it will be empty."""

from __future__ import annotations

import msgspec

from penstock.domain.observations import GroupStats

# Rates are taken over about this long, so that they do not jump with every look.
SPAN_SECONDS = 10.0


class Pace(msgspec.Struct, frozen=True):
    """Per second; `drain_seconds` is None when the backlog does not shrink."""

    sent_per_second: float
    finished_per_second: float
    backlog: int
    drain_seconds: float | None


class PaceKeeper:
    """One for each queue and group that is watched."""

    def __init__(self) -> None:
        self._looks: list[tuple[float, int, int]] = []

    def look(self, stats: GroupStats, now: float) -> Pace:
        finished = sum(stats.outcomes.values())
        backlog = stats.held + stats.available + stats.redo + stats.in_progress
        self._looks.append((now, backlog + finished, finished))
        while len(self._looks) > 2 and self._looks[1][0] <= now - SPAN_SECONDS:
            self._looks.pop(0)
        began, sent_before, finished_before = self._looks[0]
        elapsed = now - began
        if elapsed <= 0:
            return Pace(0, 0, backlog, None)
        sent = (backlog + finished - sent_before) / elapsed
        done = (finished - finished_before) / elapsed
        drain = 0.0 if not backlog else backlog / (done - sent) if done > sent else None
        return Pace(max(0.0, sent), max(0.0, done), backlog, drain)
