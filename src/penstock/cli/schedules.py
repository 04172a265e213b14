"""schedule, schedule add, edit, run, pause, resume, remove"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.format import cell, moment, sentence, table
from penstock.cli.options import (
    AsBytes,
    AsText,
    Headers,
    Key,
    Payload,
    Priority,
    QueueName,
    TtlSeconds,
    count_option,
    parse_headers,
)
from penstock.cli.payloads import read_content
from penstock.cli.session import CliSession
from penstock.client.documents import with_payload
from penstock.client.store import Store
from penstock.domain.recurrence import CATCH_UPS, Schedule, check_catch_up
from penstock.domain.refusals import no_schedule
from penstock.domain.validation import check_name

CATCH_UP_OPTION = typer.Option("--catch-up", metavar="|".join(CATCH_UPS), help="What to do about missed ticks.")
ScheduleName = Annotated[str, typer.Argument(metavar="NAME", help="The name of the schedule.", show_default=False)]


def list_schedules(session: CliSession) -> None:
    """List the schedules.

    Example: penstock schedule list
    """
    with session.store() as store:
        schedules = store.schedules()
    session.answer([with_payload(one) for one in schedules], _schedules_view(schedules))


def add(
    session: CliSession,
    name: ScheduleName,
    cron: Annotated[str, typer.Argument(metavar="CRON", help="A cron rule such as '*/5 * * * *'.", show_default=False)],
    queue: QueueName,
    payload: Payload = None,
    timezone: Annotated[str, typer.Option("--timezone", metavar="ZONE", help="Where the rule's clock hangs.")] = "UTC",
    catch_up: Annotated[str, CATCH_UP_OPTION] = "skip",
    priority: Priority = 0,
    ttl_seconds: TtlSeconds = None,
    key: Key = None,
    header: Headers = None,
    text: AsText = False,
    bytes: AsBytes = False,
) -> None:
    """Send a message at every tick of a cron rule; a schedule of that name is replaced.

    Example: penstock schedule add nightly '0 3 * * *' reports '{"report": "sales"}' --timezone Europe/Berlin
    """
    content = read_content(payload, text, bytes)
    with session.store(create=True) as store:
        made = store.schedule(
            name,
            cron,
            queue,
            content.payload,
            timezone=timezone,
            catch_up=check_catch_up(catch_up),
            priority=priority,
            headers=parse_headers(header),
            ttl_seconds=ttl_seconds,
            key=key,
            content_type=content.content_type,
        )
    _answer_scheduled(session, made)


def edit(
    session: CliSession,
    name: ScheduleName,
    cron: Annotated[str | None, typer.Option("--cron", metavar="CRON", help="Another rule.")] = None,
    queue: Annotated[str | None, typer.Option("--queue", metavar="QUEUE", help="Another queue.")] = None,
    payload: Annotated[
        str | None, typer.Option("--payload", metavar="PAYLOAD", help="Another payload: JSON, or - for standard input.")
    ] = None,
    timezone: Annotated[str | None, typer.Option("--timezone", metavar="ZONE", help="Another time zone.")] = None,
    catch_up: Annotated[str | None, CATCH_UP_OPTION] = None,
    priority: Annotated[int | None, count_option("--priority", "Another priority; 0 is served first.")] = None,
    ttl_seconds: TtlSeconds = None,
    key: Key = None,
    header: Headers = None,
    text: AsText = False,
    bytes: AsBytes = False,
) -> None:
    """Change a schedule; what is not given stays as it is.

    Example: penstock schedule edit nightly --cron '30 4 * * *'
    """
    content = None if payload is None else read_content(payload, text, bytes)
    with session.store() as store:
        old = known_schedule(store, name)
        made = store.schedule(
            name,
            cron or old.cron,
            queue or old.queue,
            old.payload if content is None else content.payload,
            timezone=timezone or old.timezone,
            catch_up=check_catch_up(catch_up or old.catch_up),
            priority=old.priority if priority is None else priority,
            headers=parse_headers(header) or old.headers or None,
            ttl_seconds=old.ttl_seconds if ttl_seconds is None else ttl_seconds,
            key=key or old.key,
            content_type=old.content_type if content is None else content.content_type,
        )
    _answer_scheduled(session, made)


def run(session: CliSession, name: ScheduleName) -> None:
    """Send the message of a schedule now, paused or not; its ticks stay as they are.

    Example: penstock schedule run nightly
    """
    with session.store() as store:
        queue = known_schedule(store, name).queue
        message_id = store.run_schedule(name)
    session.answer({"schedule": name, "queue": queue, "id": message_id}, Text(message_id))


def known_schedule(store: Store, name: str) -> Schedule:
    check_name("schedule", name)
    found = {one.name: one for one in store.schedules()}
    if name not in found:
        raise no_schedule(name, found)
    return found[name]


def _answer_scheduled(session: CliSession, made: Schedule) -> None:
    session.answer(with_payload(made), sentence(f"Schedule {made.name} sends to {made.queue} next {_tick(made)}."))


def _tick(schedule: Schedule) -> str:
    return "never" if schedule.next_at is None else f"at {moment(schedule.next_at)}"


def pause(session: CliSession, name: ScheduleName) -> None:
    """Stop a schedule for now; ticks missed meanwhile are not sent.

    Example: penstock schedule pause nightly
    """
    with session.store() as store:
        paused = store.pause_schedule(name)
    session.answer(with_payload(paused), sentence(f"Schedule {name} is paused."))


def resume(session: CliSession, name: ScheduleName) -> None:
    """Let a paused schedule go on.

    Example: penstock schedule resume nightly
    """
    with session.store() as store:
        resumed = store.resume_schedule(name)
    session.answer(with_payload(resumed), sentence(f"Schedule {name} sends next {_tick(resumed)}."))


def remove(session: CliSession, name: ScheduleName) -> None:
    """Remove a schedule; what it sent stays.

    Example: penstock schedule remove nightly
    """
    with session.store() as store:
        store.unschedule(name)
    session.answer({"name": name, "removed": True}, sentence(f"Schedule {name} is removed."))


def _schedules_view(schedules: list[Schedule]) -> Table | Text:
    if not schedules:
        return Text("No schedules.", style="dim")
    made = table(
        "schedule",
        "cron",
        "timezone",
        "queue",
        "catch up",
        "next",
        folds=("cron",),
        spares=("catch up", "timezone"),
    )
    for one in schedules:
        upcoming = Text("paused", style="yellow") if one.paused else cell(one.next_at)
        made.add_row(*(cell(value) for value in (one.name, one.cron, one.timezone, one.queue, one.catch_up)), upcoming)
    return made
