"""Schedules: cron rules that send messages."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from penstock.domain.errors import NotFound
from penstock.domain.names import check_name, nearest, shown
from penstock.domain.recurrence import Schedule
from penstock.servers.access import Right
from penstock.servers.http.api.contents import NewContent
from penstock.servers.http.api.documents import Removed, ScheduleDocument, Schedules, schedule_document
from penstock.servers.http.api.operations import Call, operation
from penstock.servers.http.api.values import QueueName, ScheduleName

TAG = "schedules"


class NewSchedule(NewContent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cron rule and the message it sends. Ticks that were missed are left out (`skip`), sent as one, or sent all."""

    cron: Annotated[str, Meta(max_length=200, examples=["*/5 * * * *"])]
    queue: QueueName
    timezone: Annotated[str, Meta(max_length=100, examples=["Europe/Berlin"])] = "UTC"
    catch_up: Literal["skip", "one", "all"] = "skip"


@operation("GET", "/schedules", Right.LOOK, TAG)
async def list_schedules(call: Call) -> Schedules:
    """All schedules of queues that the user may look at, by name."""
    found = await call.store.schedules()
    return Schedules([schedule_document(one) for one in found if call.identity.may(Right.LOOK, one.queue)])


@operation("GET", "/schedules/{schedule}", Right.LOOK, TAG)
async def show_schedule(call: Call, schedule: ScheduleName) -> ScheduleDocument:
    """One schedule, with its next tick."""
    return schedule_document(await _known(call, schedule, Right.LOOK))


@operation("PUT", "/schedules/{schedule}", Right.MANAGE, TAG)
async def put_schedule(call: Call, schedule: ScheduleName, body: NewSchedule) -> ScheduleDocument:
    """Make or replace a schedule. Exactly one message is sent for each tick, however many servers run."""
    check_name("schedule", schedule)
    call.check(Right.MANAGE, body.queue)
    found = await _find(call, schedule)
    if found is not None:
        call.check(Right.MANAGE, found.queue)
    outgoing = body.outgoing()
    made = await call.store.schedule(
        schedule,
        body.cron,
        body.queue,
        outgoing.payload,
        timezone=body.timezone,
        catch_up=body.catch_up,
        priority=outgoing.priority,
        headers=outgoing.headers,
        ttl_seconds=outgoing.ttl_seconds,
        key=outgoing.key,
        content_type=outgoing.content_type,
    )
    return schedule_document(made)


@operation("DELETE", "/schedules/{schedule}", Right.MANAGE, TAG)
async def remove_schedule(call: Call, schedule: ScheduleName) -> Removed:
    """Remove a schedule; what it sent stays."""
    await _known(call, schedule, Right.MANAGE)
    await call.store.unschedule(schedule)
    return Removed(schedule)


@operation("POST", "/schedules/{schedule}/pause", Right.OPERATE, TAG)
async def pause_schedule(call: Call, schedule: ScheduleName) -> ScheduleDocument:
    """Send nothing until resumed. Ticks missed meanwhile are not sent."""
    await _known(call, schedule, Right.OPERATE)
    return schedule_document(await call.store.pause_schedule(schedule))


@operation("POST", "/schedules/{schedule}/resume", Right.OPERATE, TAG)
async def resume_schedule(call: Call, schedule: ScheduleName) -> ScheduleDocument:
    """Go on with the next tick."""
    await _known(call, schedule, Right.OPERATE)
    return schedule_document(await call.store.resume_schedule(schedule))


async def _known(call: Call, name: str, right: Right) -> Schedule:
    """The schedule, if it is there and its queue is the user's to use so; both look the same otherwise."""
    check_name("schedule", name)
    found = await _find(call, name)
    if found is None or not call.identity.may(right, found.queue):
        yours = [one.name for one in await call.store.schedules() if call.identity.may(right, one.queue)]
        raise NotFound(f"there is no schedule {shown(name)}{nearest(name, yours)}")
    return found


async def _find(call: Call, name: str) -> Schedule | None:
    return next((one for one in await call.store.schedules() if one.name == name), None)
