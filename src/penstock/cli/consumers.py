"""consumers, leases"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.format import cell, duration, plural, sentence, table
from penstock.cli.options import Group, Limit, QueueName, QueueNames
from penstock.cli.session import CliSession, known_group, known_queue
from penstock.client.queue import MAX_LIMIT
from penstock.domain.control_characters import escape_controls
from penstock.domain.errors import InvalidInput, NotFound
from penstock.domain.results import ConsumerInfo, LeaseInfo, processes_of
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_integer, check_name, nearest, shown


def consumers(
    session: CliSession,
    queue: QueueNames = None,
    release: Annotated[
        str | None, typer.Option("--release", metavar="CONSUMER", help="Remove one that is gone, with its leases.")
    ] = None,
    group: Group = None,
) -> None:
    """List the registered consumers in birth order, one row for each process, with its queues.

    Example: penstock consumers orders
    """
    if release is not None:
        _release(session, queue or [], release, group)
        return
    with session.store() as store:
        wanted = {known_queue(store, name).name for name in queue or []}
        registered = [one for one in store.consumers() if not wanted or one.queue in wanted]
    session.answer(registered, consumers_view(registered))


def _release(session: CliSession, queues: list[str], name: str, group: str | None) -> None:
    if len(queues) != 1:
        raise InvalidInput(f"to release consumer {shown(name)}, name its one queue")
    with session.queue(queues[0]) as source:
        reader = known_group(source, group)
        known = [one.name for one in source.consumers() if one.group == reader]
        held = source.engine.leases(source.name, reader, consumer=check_name("consumer", name), limit=1)
        if name not in known and not held:
            where = f"group {shown(reader)} of queue {shown(source.name)}"
            raise NotFound(f"{where} has no consumer {shown(name)}{nearest(name, known)}")
        count = source.engine.deregister(source.name, reader, name)
    document = {"queue": queues[0], "group": reader, "consumer": name, "released": count}
    session.answer(document, sentence(plural(count, "message"), f"let go by {shown(name)}, which is removed."))


def leases(
    session: CliSession,
    queue: QueueName,
    consumer: Annotated[str | None, typer.Option("--consumer", metavar="NAME", help="Only what this one has.")] = None,
    group: Group = None,
    limit: Limit = 100,
) -> None:
    """List what is running: who has it, for how long, until when, and the token that settles it.

    Example: penstock leases orders
    """
    with session.queue(queue) as source:
        reader = known_group(source, group)
        holder = None if consumer is None else check_name("consumer", consumer)
        held = source.engine.leases(
            source.name, reader, consumer=holder, limit=check_integer("limit", limit, 1, MAX_LIMIT)
        )
        now = to_time(source.engine.now())
    session.answer(held, _leases_view(held, now))


def _leases_view(held: list[LeaseInfo], now: datetime) -> Table | Text:
    if not held:
        return Text("Nothing is in flight.", style="dim")
    columns = ("message", "consumer", "try", "running", "ends in", "token")
    made = table(
        *columns,
        numbers=("try", "running", "ends in", "token"),
        folds=("consumer",),
        spares=("ends in", "try", "running", "consumer"),
    )
    for one in held:
        made.add_row(
            cell(one.id),
            cell(one.consumer),
            str(one.attempt),
            duration(max(0.0, (now - one.leased_at).total_seconds())),
            duration(max(0.0, (one.ends_at - now).total_seconds())),
            str(one.token),
        )
    return made


def consumers_view(consumers: list[ConsumerInfo]) -> Table | Text:
    """A row per process, with its queues."""
    if not consumers:
        return Text("No registered consumers.", style="dim")
    columns = ("consumer", "queues", "last heartbeat", "every")
    made = table(*columns, folds=("queues",), spares=("every",))
    for one in processes_of(consumers):
        made.add_row(
            cell(one.name),
            Text("\n").join(_place(own) for own in one.consumers),
            cell(one.heartbeat_at),
            duration(one.heartbeat_seconds),
        )
    return made


def _place(one: ConsumerInfo) -> Text:
    return Text.assemble(cell(one.queue), (f" {escape_controls(one.group)}, {one.index + 1} of {one.living}", "dim"))
