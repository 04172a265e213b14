"""Schedules: the next ticks, and forms to create, change, run and remove them."""

from __future__ import annotations

from datetime import datetime
from itertools import islice
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import InvalidSchedule, NotFound, Refused
from penstock.domain.recurrence import Schedule, check_catch_up, ticks
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_name, from_time, shown
from penstock.servers.access import Right
from penstock.servers.http.auth import check_right, identity_of
from penstock.servers.http.dashboard.figures import second
from penstock.servers.http.dashboard.forms import Form, form_of
from penstock.servers.http.dashboard.payloads import preview
from penstock.servers.http.dashboard.renderer import back, page
from penstock.servers.http.dashboard.visible_queues import visible_queues
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

SHOWN = 200
TICKS_SHOWN = 3
# Longer payloads cannot be edited in a form.
EDITED_BYTES = 64 << 10


class ScheduleRow(NamedTuple):
    schedule: Schedule
    ticks: list[datetime]
    preview: str


async def show(request: Request) -> Response:
    identity = identity_of(request)
    queues = [info.name for info in await visible_queues(request) if identity.may(Right.MANAGE, info.name)]
    schedules = [one for one in await http_state(request).store.schedules() if identity.may(Right.LOOK, one.queue)]
    rows = [ScheduleRow(one, _ticks(one), preview(one.payload)) for one in schedules[:SHOWN]]
    hidden = max(0, len(schedules) - SHOWN)
    return page(request, "schedules.html", rows=rows, hidden=hidden, queues=queues, schedule=None, text="{}")


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
    await http_state(request).store.pause_schedule(schedule)
    return back(
        request, "schedules", notice=f"Schedule {schedule!r} is paused; ticks until you resume it are not sent."
    )


async def resume(request: Request, schedule: str) -> Response:
    await _allowed(request, schedule)
    await http_state(request).store.resume_schedule(schedule)
    return back(request, "schedules", notice=f"Schedule {schedule!r} goes on.")


async def run(request: Request, schedule: str) -> Response:
    found = await _allowed(request, schedule)
    message_id = await http_state(request).store.run_schedule(schedule)
    notice = f"Schedule {schedule!r} has sent this message; its ticks stay as they are."
    return back(request, "queues", found.queue, "messages", message_id, notice=notice)


async def _find(request: Request, name: str) -> Schedule | None:
    return next((one for one in await http_state(request).store.schedules() if one.name == name), None)


async def _allowed(request: Request, name: str, right: Right = Right.OPERATE) -> Schedule:
    """Check the right to the queue of the schedule: operate, or manage to change it."""
    found = await _find(request, name)
    if found is None or not identity_of(request).may(right, found.queue):
        raise NotFound(f"there is no schedule {shown(name)}")
    return found


# -- making and changing ---------------------------------------------------------------------------------------------


async def show_one(request: Request, schedule: str) -> Response:
    """The form to edit a schedule."""
    found = await _allowed(request, schedule, Right.MANAGE)
    queues = [info.name for info in await visible_queues(request)]
    return page(request, "schedule.html", schedule=found, text=text_of(found.payload), queues=queues)


def text_of(payload: bytes) -> str | None:
    """The payload as text for a form; None if it is not text, or too long to edit."""
    try:
        text = payload.decode() if len(payload) <= EDITED_BYTES else None
    except UnicodeDecodeError:
        return None
    return None if text is not None and "\0" in text else text


async def create(request: Request) -> Response:
    form = await form_of(request)
    name = check_name("schedule", form.text("name") or "")
    if await _find(request, name) is not None:
        raise Refused(f"there is a schedule {shown(name)} already: edit it, or choose another name")
    payload, content_type = form.payload()
    return await _put(request, form, name, payload, content_type)


async def edit(request: Request, schedule: str) -> Response:
    old = await _allowed(request, schedule, Right.MANAGE)
    form = await form_of(request)
    payload, content_type = (old.payload, old.content_type) if text_of(old.payload) is None else form.payload()
    return await _put(request, form, schedule, payload, content_type)


async def _put(request: Request, form: Form, name: str, payload: bytes, content_type: str | None) -> Response:
    queue = check_name("queue", form.text("queue") or "")
    check_right(identity_of(request), Right.MANAGE, queue)
    made = await http_state(request).store.schedule(
        name,
        form.text("cron") or "",
        queue,
        payload,
        timezone=form.text("timezone") or "UTC",
        catch_up=check_catch_up(form.text("catch_up") or "skip"),
        priority=form.whole("priority") or 0,
        headers=form.headers(),
        ttl_seconds=form.seconds("ttl_seconds"),
        key=form.text("key"),
        content_type=content_type,
    )
    tick = "is paused" if made.paused else f"sends to {shown(queue)} next at {second(made.next_at)} UTC"
    return back(request, "schedules", notice=f"Schedule {name!r} {tick}.")


async def remove(request: Request, schedule: str) -> Response:
    await _allowed(request, schedule, Right.MANAGE)
    await http_state(request).store.unschedule(schedule)
    return back(request, "schedules", notice=f"Schedule {schedule!r} is removed; what it sent stays.")


ROUTES = [
    Route("GET", "/schedules", show, Right.LOOK),
    Route("POST", "/schedules", create, Right.MANAGE),
    Route("GET", "/schedules/{schedule}", show_one, Right.MANAGE),
    Route("POST", "/schedules/{schedule}", edit, Right.MANAGE),
    Route("POST", "/schedules/{schedule}/remove", remove, Right.MANAGE),
    Route("POST", "/schedules/{schedule}/run", run, Right.OPERATE),
    Route("POST", "/schedules/{schedule}/pause", pause, Right.OPERATE),
    Route("POST", "/schedules/{schedule}/resume", resume, Right.OPERATE),
]
