"""Rates of a queue from two samples of its counters, and the estimated time to drain."""

from __future__ import annotations

import msgspec

from penstock.domain.results import GroupStats

# Rates are averaged over about this time, so that they do not jump with every sample.
SPAN_SECONDS = 10.0


class QueueRates(msgspec.Struct, frozen=True):
    """Messages sent and finished, and attempts failed, per second. `drain_seconds` is None when the backlog does not
    shrink."""

    sent_per_second: float
    finished_per_second: float
    backlog: int
    drain_seconds: float | None
    failed_per_second: float = 0


class RateMeter:
    """Computes the rates of one queue and group from samples of its counters."""

    def __init__(self) -> None:
        self._samples: list[tuple[float, int, int, int]] = []

    def sample(self, stats: GroupStats, now: float) -> QueueRates:
        finished = sum(stats.endings.values())
        backlog = stats.held + stats.available + stats.redo + stats.in_progress
        sent_so_far = backlog + sum(stats.outcomes.values())
        self._samples.append((now, sent_so_far, finished, stats.failed_attempts))
        while len(self._samples) > 2 and self._samples[1][0] <= now - SPAN_SECONDS:
            self._samples.pop(0)
        began, sent_before, finished_before, failed_before = self._samples[0]
        elapsed = now - began
        if elapsed <= 0:
            return QueueRates(0, 0, backlog, None)
        sent = (sent_so_far - sent_before) / elapsed
        done = (finished - finished_before) / elapsed
        drain = 0.0 if not backlog else backlog / (done - sent) if done > sent else None
        failed = (stats.failed_attempts - failed_before) / elapsed
        return QueueRates(max(0.0, sent), max(0.0, done), backlog, drain, max(0.0, failed))
