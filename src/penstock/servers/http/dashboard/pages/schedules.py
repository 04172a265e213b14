"""Schedules, with the ticks that come next."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import InvalidSchedule, NotFound
from penstock.domain.names import shown
from penstock.domain.recurrence import Schedule, ticks
from penstock.domain.times import from_time, to_time
from penstock.servers.access import Right
from penstock.servers.http.auth import identity_of
from penstock.servers.http.dashboard.payloads import preview
from penstock.servers.http.dashboard.rendering import back, page
from penstock.servers.http.routing import Route
from penstock.servers.http.site import site_of

SHOWN = 200
TICKS_SHOWN = 3


class Row(NamedTuple):
    schedule: Schedule
    ticks: list[datetime]
    preview: str


async def show(request: Request) -> Response:
    identity = identity_of(request)
    schedules = [one for one in await site_of(request).store.schedules() if identity.may(Right.LOOK, one.queue)]
    rows = [Row(one, _ticks(one), preview(one.payload)) for one in schedules[:SHOWN]]
    return page(request, "schedules.html", rows=rows, hidden=max(0, len(schedules) - SHOWN))


def _ticks(schedule: Schedule) -> list[datetime]:
    if schedule.next_at is None:
        return []
    following = ticks(schedule.cron, schedule.timezone, from_time("tick", schedule.next_at))
    try:
        return [schedule.next_at, *map(to_time, islice(following, TICKS_SHOWN - 1))]
    except InvalidSchedule:  # a rule with an end has fewer
        return [schedule.next_at]


async def pause(request: Request, schedule: str) -> Response:
    await _allowed(request, schedule)
    await site_of(request).store.pause_schedule(schedule)
    return back(request, "schedules", told=f"Schedule {schedule!r} is paused; ticks until you resume it are not sent.")


async def resume(request: Request, schedule: str) -> Response:
    await _allowed(request, schedule)
    await site_of(request).store.resume_schedule(schedule)
    return back(request, "schedules", told=f"Schedule {schedule!r} goes on.")


async def _allowed(request: Request, name: str) -> None:
    """A schedule belongs to who may operate its queue."""
    found = next((one for one in await site_of(request).store.schedules() if one.name == name), None)
    if found is None or not identity_of(request).may(Right.OPERATE, found.queue):
        raise NotFound(f"there is no schedule {shown(name)}")


ROUTES = [
    Route("GET", "/schedules", show, Right.LOOK),
    Route("POST", "/schedules/{schedule}/pause", pause, Right.OPERATE),
    Route("POST", "/schedules/{schedule}/resume", resume, Right.OPERATE),
]
