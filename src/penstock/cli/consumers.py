"""consumers"""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from penstock.cli.options import QueueNames
from penstock.cli.rendering import cell, duration, table
from penstock.cli.session import Session, known_queue
from penstock.domain.observations import ConsumerInfo


def consumers(session: Session, queue: QueueNames = None) -> None:
    """List the registered consumers in birth order.

    Example: penstock consumers orders
    """
    with session.store() as store:
        wanted = {known_queue(store, name).name for name in queue or []}
        registered = [one for one in store.consumers() if not wanted or one.queue in wanted]
    session.answer(registered, consumers_view(registered))


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
