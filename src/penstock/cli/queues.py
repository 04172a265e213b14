"""queues, queues declare, queues policy, pause, resume, seek, flush"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.dead import confirmed
from penstock.cli.looking import policy_view
from penstock.cli.options import QueueName, Yes, zoned_time
from penstock.cli.rendering import cell, plural, sentence, table
from penstock.cli.session import Session, known_queue
from penstock.client.settling import SEEK_TARGETS
from penstock.domain.names import shown
from penstock.domain.observations import QueueInfo
from penstock.domain.policy import check_changes


def place(text: str) -> int | datetime | str:
    """Where to seek to."""
    if text in ("start", "end"):
        return text
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(
            f"seek goes to {SEEK_TARGETS} (such as 2026-01-31T12:00:00Z), not {shown(text)}"
        ) from None
    return zoned_time(text)


def list_queues(session: Session) -> None:
    """List the queues with the main points of their policy.

    Example: penstock queues list
    """
    with session.store() as store:
        queues = store.queues()
    session.answer(queues, _queues_view(queues))


def declare(
    session: Session,
    queue: QueueName,
    field: Annotated[
        list[str], typer.Argument(metavar="FIELD=VALUE", help="Policy fields to set.", show_default=False)
    ],
) -> None:
    """Set policy fields of a queue, and make it if it is new; other fields keep their value.

    Example: penstock queues declare orders lease_seconds=60 max_retries=none
    """
    changes = check_changes(_parse_fields(field))
    with session.store(create=True) as store:
        policy = store.queue(queue, **changes).policy()
    session.answer({"name": queue, "policy": policy}, policy_view(policy))


def policy(session: Session, queue: QueueName) -> None:
    """Show the policy of a queue; what differs from the default stands out.

    Example: penstock queues policy orders
    """
    with session.store() as store:
        found = known_queue(store, queue).policy()
    session.answer({"name": queue, "policy": found}, policy_view(found))


def pause(session: Session, queue: QueueName) -> None:
    """Hand out nothing until resume; sends and settlements go on.

    Example: penstock pause orders
    """
    with session.store() as store:
        known_queue(store, queue).pause()
    session.answer({"queue": queue, "paused": True}, sentence(f"Queue {queue} is paused."))


def resume(session: Session, queue: QueueName) -> None:
    """Hand out messages of a paused queue again.

    Example: penstock resume orders
    """
    with session.store() as store:
        known_queue(store, queue).resume()
    session.answer({"queue": queue, "paused": False}, sentence(f"Queue {queue} goes on."))


def seek(
    session: Session,
    queue: QueueName,
    group: Annotated[str, typer.Argument(metavar="GROUP", help="The group to move.", show_default=False)],
    target: Annotated[
        Any,
        typer.Argument(
            metavar="TARGET", parser=place, help="start, end, a position, or a time with a zone.", show_default=False
        ),
    ],
) -> None:
    """Move a group to another place of the queue, to read again or to skip.

    Example: penstock seek orders analytics start
    """
    with session.store() as store:
        position = known_queue(store, queue).seek(group, target)
    document = {"queue": queue, "group": group, "position": position}
    session.answer(document, sentence(f"Group {group} of queue {queue} goes on after position {position}."))


def flush(session: Session, queue: QueueName, yes: Yes = False) -> None:
    """Remove everything in a queue for good; its policy stays.

    Example: penstock flush orders --yes
    """
    with session.store() as store:
        source = known_queue(store, queue)
        confirmed(session, yes, f"Remove everything in queue {shown(queue)} for good?")
        count = source.flush()
    session.answer({"queue": queue, "flushed": count}, sentence(plural(count, "message"), f"removed from {queue}."))


def _parse_fields(fields: list[str]) -> dict[str, object]:
    """`name=value`, the value a number, true, false, none, or a word."""
    parsed: dict[str, object] = {}
    for field in fields:
        name, equals, value = field.partition("=")
        if not equals or not name:
            raise typer.BadParameter(f"{shown(field)} is not FIELD=VALUE", param_hint="FIELD=VALUE")
        if name in parsed:
            raise typer.BadParameter(f"{shown(name)} is given twice", param_hint="FIELD=VALUE")
        parsed[name] = _parse_value(value)
    return parsed


def _parse_value(value: str) -> object:
    if value.lower() in ("none", "null"):
        return None
    try:
        parsed: object = msgspec.json.decode(value.lower() if value.lower() in ("true", "false") else value)
    except msgspec.DecodeError:
        return value
    return parsed


def _queues_view(queues: list[QueueInfo]) -> Table | Text:
    if not queues:
        return Text("No queues.", style="dim")
    made = table("queue", "groups", "delivery", "retries", "lease", "made", numbers=("retries", "lease"))
    for column in made.columns[:2]:
        column.no_wrap, column.overflow = False, "fold"
    for queue in queues:
        name = cell(queue.name)
        if queue.policy.paused:
            name.append(" (paused)", style="yellow")
        retries = "no limit" if queue.policy.max_retries is None else f"{queue.policy.max_retries:,}"
        made.add_row(
            name,
            cell(", ".join(queue.groups)),
            queue.policy.delivery,
            retries,
            f"{queue.policy.lease_seconds:g} s",
            cell(queue.created_at),
        )
    return made
