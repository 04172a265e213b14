"""The overview: one line per queue, those with problems first."""

from __future__ import annotations

import math
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.control_characters import escape_controls
from penstock.domain.results import GroupStats, unread_primary_group
from penstock.servers.access import Right
from penstock.servers.http.auth import Identity, identity_of
from penstock.servers.http.dashboard import figures
from penstock.servers.http.dashboard.event_stream import Regions, events
from penstock.servers.http.dashboard.history import History, history_of, lead
from penstock.servers.http.dashboard.renderer import fragment, mark, page
from penstock.servers.http.dashboard.series import DRAIN_SECONDS, NO_RATES, Rates, Series
from penstock.servers.http.dashboard.sparkline import Spark, spark
from penstock.servers.http.router import Route
from penstock.servers.http.sampler import QueueSample, Sample

# Rows beyond this are found by the filter.
SHOWN = 200


class QueueRow(NamedTuple):
    name: str
    group: str | None
    groups: int
    waiting: int
    in_progress: int
    held: int
    dead: int
    done: int
    oldest: float | None
    rates: Rates
    drain: str
    spark: Spark
    level: str
    note: str


class Totals(NamedTuple):
    queues: int
    waiting: int
    in_progress: int
    dead: int
    sent: float
    finished: float
    failed: float
    oldest: float | None


async def show(request: Request) -> Response:
    history = history_of(request)
    sample = await history.latest()
    wanted = request.query_params.get("q", "")[:255]
    rows = rows_of(history, sample, identity_of(request))
    found = [row for row in rows if wanted.casefold() in row.name.casefold()]
    return page(
        request,
        "overview.html",
        rows=found[:SHOWN],
        hidden=max(0, len(found) - SHOWN),
        totals=totals_of(rows),
        wanted=wanted,
        is_empty=not rows,
    )


async def watch(request: Request) -> Response:
    history, identity = history_of(request), identity_of(request)

    def regions(sample: Sample) -> Regions:
        """Rendered once per sample for all tabs of a user."""
        key = ("overview", identity.name, request.scope.get("root_path", ""))
        return history.once(key, lambda: _regions(request, rows_of(history, sample, identity)))

    return events(history, identity.name, regions)


async def watch_changes(request: Request) -> Response:
    """Signals changes to pages that then reload."""
    return events(history_of(request), identity_of(request).name, lambda sample: ({}, None))


def _regions(request: Request, rows: list[QueueRow]) -> Regions:
    made = {f"row-{mark(row.name)}": fragment(request, "overview_row.html", row=row) for row in rows[:SHOWN]}
    made["totals"] = fragment(request, "overview_totals.html", totals=totals_of(rows))
    return made, None


def rows_of(history: History, sample: Sample, identity: Identity) -> list[QueueRow]:
    """The queues that the user may see: those with problems first, then by backlog."""
    seen = [queue for name, queue in sample.queues.items() if identity.may(Right.LOOK, name)]
    rows = [_row(history, queue) for queue in seen]
    return sorted(rows, key=lambda row: (LEVELS.index(row.level), -row.waiting, row.name))


LEVELS = ("bad", "warn", "good", "quiet")


def _row(history: History, queue: QueueSample) -> QueueRow:
    name = queue.info.name
    leading = lead(queue)
    if leading is None:
        level, note = ("warn", "paused") if queue.info.policy.paused else ("quiet", "")
        return QueueRow(name, None, 0, 0, 0, 0, 0, 0, None, NO_RATES, "", spark(Series()), level, note)
    group, stats = leading
    series = history.series(name, group)
    every = {one: history.series(name, one) for one in queue.groups}
    failed = [one.rates().failed for one in every.values()]
    rates = series.rates()._replace(failed=None if None in failed else sum(one or 0 for one in failed))
    dead = sum(one.dead for one in queue.groups.values())
    level, note = _worst(queue, every, group)
    return QueueRow(
        name,
        group,
        len(queue.groups),
        stats.available + stats.redo,
        stats.in_progress,
        stats.held,
        dead,
        stats.done,
        stats.oldest_age_seconds,
        rates,
        _drain(queue, series, stats),
        spark(series),
        level,
        note,
    )


def _drain(queue: QueueSample, series: Series, stats: GroupStats) -> str:
    """Drained only if no other group has messages left either: the row is for the whole queue."""
    drain = drain_of(series, stats, queue.info.policy.paused)
    others = (one.available + one.redo + one.held + one.in_progress for one in queue.groups.values())
    return "" if drain == "drained" and any(others) else drain


def _worst(queue: QueueSample, every: dict[str, Series], leading: str) -> tuple[str, str]:
    """The status of the group in the worst state, with its name unless it represents the queue."""
    found = {group: judged(queue, group, series) for group, series in every.items()}
    group = min(found, key=lambda one: (LEVELS.index(found[one][0]), one != leading))
    level, note = found[group]
    return level, note if group == leading or not note or note == "paused" else f"{escape_controls(group)}: {note}"


def judged(queue: QueueSample, group: str, series: Series) -> tuple[str, str]:
    """The status of a group: a word for the colour, and a few for people."""
    stats = queue.groups[group]
    waiting = stats.available + stats.redo
    if series.grown("died"):
        return "bad", "failing"
    if queue.info.policy.paused:
        return "warn", "paused"
    if series.grown("failed"):
        return "warn", "failing, retries left"
    if group == unread_primary_group(queue.info.policy, queue.groups):
        return "warn", "never read"
    if waiting and not stats.in_progress and series.rates().finished == 0:
        return "warn", "nobody is working"
    if waiting or stats.in_progress or stats.held:
        return "good", ""
    return "quiet", ""


def drain_of(series: Series, stats: GroupStats, paused: bool) -> str:
    if not stats.available + stats.redo:
        return "" if stats.held or stats.in_progress else "drained"
    seconds = series.drain_seconds()
    if paused or seconds is None:
        return ""
    if math.isinf(seconds):
        rates = series.rates(DRAIN_SECONDS)
        return "stalled" if not rates.finished else "growing" if (rates.sent or 0) > rates.finished else "level"
    return figures.duration(seconds)


def totals_of(rows: list[QueueRow]) -> Totals:
    return Totals(
        len(rows),
        sum(row.waiting for row in rows),
        sum(row.in_progress for row in rows),
        sum(row.dead for row in rows),
        sum(row.rates.sent or 0 for row in rows),
        sum(row.rates.finished or 0 for row in rows),
        sum(row.rates.failed or 0 for row in rows),
        max((row.oldest for row in rows if row.oldest is not None), default=None),
    )


ROUTES = [
    Route("GET", "/", show, Right.LOOK),
    Route("GET", "/events", watch, Right.LOOK),
    Route("GET", "/events/changes", watch_changes, Right.LOOK),
]
