"""receive, ack, nak, reject, reschedule, extend"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from penstock.cli.documents import delivery_document
from penstock.cli.format import cell, moment, preview, sentence, table
from penstock.cli.options import Code, Group, Limit, MessageId, QueueName, Reason, count_option, seconds_option
from penstock.cli.session import CliSession
from penstock.client.delivery import Delivery
from penstock.client.queue import Queue
from penstock.client.settlements import MAX_TOKEN, Held
from penstock.domain.identity import check_id
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settlement, lease_lost_error
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_integer, check_seconds


def receive(
    session: CliSession,
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
    """Receive messages under a lease; prints the ids and tokens that settling needs.

    Example: penstock receive orders --limit 10 --wait-seconds 5
    """
    with session.queue(queue) as source:
        deliveries = source.receive(limit, group, consumer, lease_seconds, wait_seconds)
        session.answer([delivery_document(one) for one in deliveries], _deliveries_view(deliveries))
        if ack and deliveries:
            # After printing: if that fails, the messages come back instead of being lost.
            source.ack_many(deliveries)
            return
    if deliveries:
        first = deliveries[0]
        session.hint(f"Settle each: penstock ack|nak|reject|reschedule {queue} {first.id} --token {first.token}")


def _deliveries_view(deliveries: list[Delivery]) -> Table | Text:
    if not deliveries:
        return Text("Nothing to receive.", style="dim")
    made = table(
        "id", "token", "attempt", "payload", numbers=("token", "attempt"), folds=("payload",), spares=("attempt",)
    )
    for one in deliveries:
        made.add_row(cell(one.id), str(one.token), str(one.attempt), preview(one.payload))
    return made


Token = Annotated[int, count_option("--token", "The token that receive printed.", metavar="TOKEN")]


def ack(
    session: CliSession, queue: QueueName, id: MessageId, token: Token, group: Group = None, reason: Reason = None
) -> None:
    """Acknowledge: the message succeeded.

    Example: penstock ack orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7
    """
    _settle(session, queue, id, token, group, lambda held: Ack(held, reason))


def nak(
    session: CliSession,
    queue: QueueName,
    id: MessageId,
    token: Token,
    delay_seconds: Annotated[
        float | None, seconds_option("--delay-seconds", "Try again after this long, not the backoff.")
    ] = None,
    group: Group = None,
    reason: Reason = None,
    code: Code = None,
) -> None:
    """Retry a message: after the queue's backoff, or after a delay.

    Example: penstock nak orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --reason "gateway down"
    """
    _settle(session, queue, id, token, group, lambda held: Nak(held, reason, delay_seconds, code))


def reject(
    session: CliSession,
    queue: QueueName,
    id: MessageId,
    token: Token,
    group: Group = None,
    reason: Reason = None,
    code: Code = None,
) -> None:
    """Reject a message: it becomes a dead letter at once.

    Example: penstock reject orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --reason "no such customer"
    """
    _settle(session, queue, id, token, group, lambda held: Reject(held, reason, code=code))


def reschedule(
    session: CliSession,
    queue: QueueName,
    id: MessageId,
    token: Token,
    delay_seconds: Annotated[float, seconds_option("--delay-seconds", "How much later.")] = 3600,
    group: Group = None,
    reason: Reason = None,
) -> None:
    """Deliver a message again after a delay, with attempts reset.

    Example: penstock reschedule orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --delay-seconds 600
    """
    _settle(session, queue, id, token, group, lambda held: Reschedule(held, delay_seconds, reason))


def extend(
    session: CliSession,
    queue: QueueName,
    id: MessageId,
    token: Token,
    seconds: Annotated[float, seconds_option("--seconds", "The lease lasts at least this long from now.")],
    group: Group = None,
) -> None:
    """Extend a lease.

    Example: penstock extend orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --seconds 60
    """
    check_seconds("seconds", seconds, above=True)
    with session.queue(queue) as source:
        held = _held(source, id, token, group)
        (end,) = source.engine.extend(source.name, held.group, [(token, held.position)], seconds)
    if end is None:
        raise lease_lost_error(token, held.id)
    document = {"id": held.id, "queue": queue, "group": held.group, "lease_ends_at": to_time(end)}
    session.answer(document, sentence(f"The lease on {held.id} ends at {moment(to_time(end))}."))


def _held(queue: Queue, message_id: str, token: int, group: str | None) -> Held:
    one = check_id(message_id)
    check_integer("token", token, 0, MAX_TOKEN)
    reader = group or queue.policy().primary_group or "default"
    return Held(one, token, queue.name, reader, queue.engine.position(queue.name, one))


def _settle(
    session: CliSession,
    queue: str,
    id: str,
    token: int,
    group: str | None,
    settlement: Callable[[Held], Settlement],
) -> None:
    with session.queue(queue) as source:
        held = _held(source, id, token, group)
        (result,) = source.settle([settlement(held)])
    if result.error is not None:
        raise result.error
    document = {"id": held.id, "queue": queue, "group": held.group, "state": result.state}
    session.answer(document, sentence(f"{held.id} is now {result.state} in group {held.group}."))
