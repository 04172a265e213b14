"""ack, nak, reject, reschedule, extend: what another run of `receive` printed, settled by its id and token."""

from __future__ import annotations

from typing import Annotated

from penstock.cli.options import Group, MessageId, QueueName, Reason, count_option, seconds_option
from penstock.cli.rendering import moment, sentence
from penstock.cli.session import Session, known_queue
from penstock.client.queue import Queue
from penstock.client.settling import MAX_TOKEN, Held
from penstock.domain.errors import LeaseLost
from penstock.domain.identity import check_id
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settlement
from penstock.domain.times import check_integer, check_seconds, to_time

Token = Annotated[int, count_option("--token", "The token that receive printed.", metavar="TOKEN")]


def ack(
    session: Session, queue: QueueName, id: MessageId, token: Token, group: Group = None, reason: Reason = None
) -> None:
    """Done: the message succeeded.

    Example: penstock ack orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7
    """
    with session.store() as store:
        source = known_queue(store, queue)
        _settle(session, source, Ack(_held(source, id, token, group), reason))


def nak(
    session: Session,
    queue: QueueName,
    id: MessageId,
    token: Token,
    delay_seconds: Annotated[
        float | None, seconds_option("--delay-seconds", "Try again after this long, not the backoff.")
    ] = None,
    group: Group = None,
    reason: Reason = None,
) -> None:
    """Try again: after the queue's backoff, or after a delay.

    Example: penstock nak orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --reason "gateway down"
    """
    with session.store() as store:
        source = known_queue(store, queue)
        _settle(session, source, Nak(_held(source, id, token, group), reason, delay_seconds))


def reject(
    session: Session, queue: QueueName, id: MessageId, token: Token, group: Group = None, reason: Reason = None
) -> None:
    """Never: the message becomes a dead letter at once.

    Example: penstock reject orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --reason "no such customer"
    """
    with session.store() as store:
        source = known_queue(store, queue)
        _settle(session, source, Reject(_held(source, id, token, group), reason))


def reschedule(
    session: Session,
    queue: QueueName,
    id: MessageId,
    token: Token,
    delay_seconds: Annotated[float, seconds_option("--delay-seconds", "How much later.")] = 3600,
    group: Group = None,
    reason: Reason = None,
) -> None:
    """Later: it comes back after a delay, with attempts starting again.

    Example: penstock reschedule orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --delay-seconds 600
    """
    with session.store() as store:
        source = known_queue(store, queue)
        _settle(session, source, Reschedule(_held(source, id, token, group), delay_seconds, reason))


def extend(
    session: Session,
    queue: QueueName,
    id: MessageId,
    token: Token,
    seconds: Annotated[float, seconds_option("--seconds", "The lease lasts at least this long from now.")],
    group: Group = None,
) -> None:
    """Keep a lease for longer.

    Example: penstock extend orders 019a8c3e-7b2d-7abc-8def-00000000002a --token 7 --seconds 60
    """
    check_seconds("seconds", seconds, above=True)
    with session.store() as store:
        source = known_queue(store, queue)
        held = _held(source, id, token, group)
        (end,) = source.engine.extend(source.name, held.group, [(token, held.position)], seconds)
    if end is None:
        raise LeaseLost(f"lease {token} on message {held.id} was lost: it ended, was settled or was taken over")
    document = {"id": held.id, "queue": queue, "group": held.group, "lease_ends_at": to_time(end)}
    session.answer(document, sentence(f"The lease on {held.id} ends at {moment(to_time(end))}."))


def _held(queue: Queue, message_id: str, token: int, group: str | None) -> Held:
    one = check_id(message_id)
    check_integer("token", token, 0, MAX_TOKEN)
    reader = group or queue.policy().primary_group or "default"
    return Held(one, token, queue.name, reader, queue.engine.position(queue.name, one))


def _settle(session: Session, queue: Queue, settlement: Settlement) -> None:
    (result,) = queue.settle([settlement])
    if result.error is not None:
        raise result.error
    held = settlement.delivery
    document = {"id": held.id, "queue": queue.name, "group": held.group, "state": result.state}
    session.answer(document, sentence(f"{held.id} is now {result.state} in group {held.group}."))
