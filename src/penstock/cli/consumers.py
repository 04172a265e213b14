"""consumers"""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.options import Group, QueueNames
from penstock.cli.rendering import cell, duration, plural, sentence, table
from penstock.cli.session import Session, known_group, known_queue
from penstock.domain.errors import InvalidInput
from penstock.domain.names import check_name, shown
from penstock.domain.observations import ConsumerInfo


def consumers(
    session: Session,
    queue: QueueNames = None,
    release: Annotated[
        str | None, typer.Option("--release", metavar="CONSUMER", help="Remove one that is gone, with its leases.")
    ] = None,
    group: Group = None,
) -> None:
    """List the registered consumers in birth order.

    Example: penstock consumers orders
    """
    if release is not None:
        _release(session, queue or [], release, group)
        return
    with session.store() as store:
        wanted = {known_queue(store, name).name for name in queue or []}
        registered = [one for one in store.consumers() if not wanted or one.queue in wanted]
    session.answer(registered, consumers_view(registered))


def _release(session: Session, queues: list[str], name: str, group: str | None) -> None:
    if len(queues) != 1:
        raise InvalidInput(f"to release consumer {shown(name)}, name its one queue")
    with session.store() as store:
        source = known_queue(store, queues[0])
        reader = known_group(source, group)
        count = source.engine.deregister(source.name, reader, check_name("consumer", name))
    document = {"queue": queues[0], "group": reader, "consumer": name, "released": count}
    session.answer(document, sentence(plural(count, "message"), f"let go by {shown(name)}, which is removed."))


def consumers_view(consumers: list[ConsumerInfo]) -> Table | Text:
    if not consumers:
        return Text("No registered consumers.", style="dim")
    made = table("consumer", "queue", "group", "place", "last heartbeat", "every", folds=("consumer", "queue", "group"))
    for one in consumers:
        made.add_row(
            cell(one.name),
            cell(one.queue),
            cell(one.group),
            f"{one.index + 1} of {one.living}",
            cell(one.heartbeat_at),
            duration(one.heartbeat_seconds),
        )
    return made
