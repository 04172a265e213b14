"""receive, peek"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.documents import delivery_document, with_payload
from penstock.cli.options import Group, Limit, QueueName, seconds_option
from penstock.cli.rendering import cell, duration, preview, table
from penstock.cli.session import Session, known_queue
from penstock.client.delivery import Delivery
from penstock.domain.message import Message
from penstock.domain.names import nearest, shown


def receive(
    session: Session,
    queue: QueueName,
    limit: Limit = 1,
    group: Group = None,
    consumer: Annotated[
        str | None, typer.Option("--consumer", metavar="NAME", help="Who receives, for the audit trail.")
    ] = None,
    lease_seconds: Annotated[
        float | None, seconds_option("--lease-seconds", "How long they are yours; else the policy says.")
    ] = None,
    wait_seconds: Annotated[float, seconds_option("--wait-seconds", "Wait this long for the first one.")] = 0,
    ack: Annotated[bool, typer.Option("--ack", help="Ack them as soon as they are printed.")] = False,
) -> None:
    """Take messages under a lease; prints what settling them needs.

    Example: penstock receive orders --limit 10 --wait-seconds 5
    """
    with session.store() as store:
        source = store.queue(queue)
        known = [info.name for info in store.queues()]
        deliveries = source.receive(limit, group, consumer, lease_seconds, wait_seconds)
        session.answer([delivery_document(one) for one in deliveries], _deliveries_view(deliveries))
        if ack and deliveries:
            # After printing: if that fails, the messages come back instead of being lost.
            source.ack_many(deliveries)
            return
    if queue not in known:
        session.hint(f"There was no queue {shown(queue)}, now there is{nearest(queue, known)}")
    if deliveries:
        first = deliveries[0]
        session.hint(f"Settle each: penstock ack|nak|reject|reschedule {queue} {first.id} --token {first.token}")


def peek(session: Session, queue: QueueName, limit: Limit = 10, group: Group = None) -> None:
    """Show what would be received next, without receiving it.

    Example: penstock peek orders --limit 3
    """
    with session.store() as store:
        messages = known_queue(store, queue).peek(limit, group)
    session.answer([with_payload(message) for message in messages], _messages_view(messages))


def _deliveries_view(deliveries: list[Delivery]) -> Table | Text:
    if not deliveries:
        return Text("Nothing to receive.", style="dim")
    made = table("id", "token", "attempt", "payload", numbers=("token", "attempt"), folds=("payload",))
    for one in deliveries:
        made.add_row(cell(one.id), str(one.token), str(one.attempt), preview(one.payload))
    return made


def _messages_view(messages: list[Message]) -> Table | Text:
    if not messages:
        return Text("Nothing is ready.", style="dim")
    made = table("id", "priority", "age", "payload", numbers=("priority", "age"), folds=("payload",))
    now = datetime.now(UTC)
    for message in messages:
        age = duration(max(0, (now - message.created_at).total_seconds()))
        made.add_row(cell(message.id), cell(message.priority), age, preview(message.payload, 100))
    return made
