"""Schedules: cron rules that send messages."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from penstock.domain.recurrence import Schedule
from penstock.domain.refusals import no_schedule
from penstock.domain.validation import check_name
from penstock.servers.access import Right
from penstock.servers.http.api.documents import Removed, ScheduleDocument, Schedules, Sent, schedule_document
from penstock.servers.http.api.new_message import NewContent
from penstock.servers.http.api.operations import ApiCall, operation
from penstock.servers.http.api.values import QueueName, ScheduleName
from penstock.servers.permissions import Needs

TAG = "schedules"
# Five fields, or six with seconds first; the domain validates them.
FIELDS = r"^\s*\S+(\s+\S+){4,5}\s*$"


class NewSchedule(NewContent, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A cron rule and the message it sends. Ticks that were missed are left out (`skip`), sent as one, or sent all."""

    cron: Annotated[str, Meta(max_length=200, extra_json_schema={"pattern": FIELDS})]
    queue: QueueName
    timezone: Annotated[str, Meta(max_length=100, extra_json_schema={"minLength": 1})] = "UTC"
    catch_up: Literal["skip", "one", "all"] = "skip"


@operation("GET", "/schedules", Needs.READ_SCHEDULES, TAG)
async def list_schedules(call: ApiCall) -> Schedules:
    """All schedules of queues that the user may look at, by name."""
    found = await call.store.schedules()
    return Schedules([schedule_document(one) for one in found if call.identity.may(Needs.READ_SCHEDULES, one.queue)])


@operation("GET", "/schedules/{schedule}", Needs.READ_SCHEDULES, TAG)
async def show_schedule(call: ApiCall, schedule: ScheduleName) -> ScheduleDocument:
    """One schedule, with its next tick."""
    return schedule_document(await _known(call, schedule, Needs.READ_SCHEDULES))


@operation("PUT", "/schedules/{schedule}", Needs.SET_SCHEDULE, TAG)
async def put_schedule(call: ApiCall, schedule: ScheduleName, body: NewSchedule) -> ScheduleDocument:
    """Create or replace a schedule. Each tick sends exactly one message, however many servers run."""
    check_name("schedule", schedule)
    call.check(Needs.SET_SCHEDULE, body.queue)
    if await _find(call, schedule) is not None:
        await _known(call, schedule, Needs.SET_SCHEDULE)
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


@operation("DELETE", "/schedules/{schedule}", Needs.SET_SCHEDULE, TAG)
async def remove_schedule(call: ApiCall, schedule: ScheduleName) -> Removed:
    """Remove a schedule; messages that it sent stay."""
    await _known(call, schedule, Needs.SET_SCHEDULE)
    await call.store.unschedule(schedule)
    return Removed(schedule)


@operation("POST", "/schedules/{schedule}/pause", Needs.PAUSE_SCHEDULE, TAG)
async def pause_schedule(call: ApiCall, schedule: ScheduleName) -> ScheduleDocument:
    """Pause a schedule. Ticks missed meanwhile are not sent."""
    await _known(call, schedule, Needs.PAUSE_SCHEDULE)
    return schedule_document(await call.store.pause_schedule(schedule))


@operation("POST", "/schedules/{schedule}/resume", Needs.PAUSE_SCHEDULE, TAG)
async def resume_schedule(call: ApiCall, schedule: ScheduleName) -> ScheduleDocument:
    """Resume a schedule with its next tick."""
    await _known(call, schedule, Needs.PAUSE_SCHEDULE)
    return schedule_document(await call.store.resume_schedule(schedule))


@operation("POST", "/schedules/{schedule}/run", Needs.RUN_SCHEDULE, TAG, status=201)
async def run_schedule(call: ApiCall, schedule: ScheduleName) -> Sent:
    """Send the message of a schedule now, paused or not. Its ticks do not change."""
    await _known(call, schedule, Needs.RUN_SCHEDULE)
    return Sent(await call.store.run_schedule(schedule))


async def _known(call: ApiCall, name: str, right: Right) -> Schedule:
    """The schedule, if the user has the right to its queue; otherwise the same error as for an unknown one."""
    check_name("schedule", name)
    found = await _find(call, name)
    if found is None or not call.identity.may(right, found.queue):
        yours = [one.name for one in await call.store.schedules() if call.identity.may(right, one.queue)]
        raise no_schedule(name, yours)
    return found


async def _find(call: ApiCall, name: str) -> Schedule | None:
    return next((one for one in await call.store.schedules() if one.name == name), None)
