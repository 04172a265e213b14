"""QSEND, QRECEIVE and the settlements: the whole model, for clients that want more than bananaq's commands."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.client.aio.call import Call
from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import Event
from penstock.domain.message import BYTES, SYSTEM, Outgoing, decode_headers, draft
from penstock.domain.settlement import Settle, Settled
from penstock.domain.times import check_integer, check_seconds, to_time
from penstock.engines.contract import (
    ATTEMPT,
    CONTENT_TYPE,
    CREATED_AT,
    CREATED_BY,
    HEADERS,
    KEY,
    LEASE_ENDS_AT,
    PAYLOAD,
    PRIORITY,
    Receipt,
)
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Blob, Count, GroupName, MessageId, Name, QueueName, Seconds, Text, Token
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.work import Waiting, Work

FAMILY = "model"
MAX_LIMIT = 10_000
NOTHING: list[Any] = []


@command("QSEND", Order.SEND, Right.SEND, FAMILY)
def send(
    session: Session,
    queue: QueueName,
    payload: Blob,
    *,
    priority: Count = 0,
    delay: Seconds | None = None,
    ttl: Seconds | None = None,
    deadline: Seconds | None = None,
    address: Text | None = None,
    key: Text | None = None,
    headers: Text | None = None,
    id: MessageId | None = None,
    by: Text = SYSTEM,
    type: Text | None = None,
    batch: Text | None = None,
) -> Begun:
    """Send a message; DEADLINE is a Unix time, HEADERS a JSON object of strings. Gives back its id."""
    outgoing = Outgoing(
        payload=payload,
        priority=priority,
        delay_seconds=delay,
        ttl_seconds=ttl,
        deadline_at=None if deadline is None else _time(deadline),
        address=address,
        key=key,
        headers=None if headers is None else _headers(headers),
        id=id,
        created_by=by,
        content_type=type,
    )
    return session.door.send(queue, draft(outgoing, batch), lambda message_id: message_id, makes=False)


def _time(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        raise InvalidInput(f"{seconds} is not a Unix time") from None


def _headers(text: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.DecodeError as error:
        raise InvalidInput(f"HEADERS is not a JSON object of strings: {error}") from None


@command("QRECEIVE", Order.RECEIVE, Right.RECEIVE, FAMILY)
def receive(
    session: Session,
    queue: QueueName,
    *,
    group: GroupName | None = None,
    consumer: Name | None = None,
    limit: Count = 1,
    lease: Seconds | None = None,
    wait: Seconds = 0.0,
) -> Begun:
    """Receive messages under a lease, and wait up to WAIT seconds for the first."""
    check_integer("LIMIT", limit, 1, MAX_LIMIT)
    check_seconds("WAIT", wait)
    if lease is not None:
        check_seconds("LEASE", lease, above=True)
    name = consumer or session.consumer
    waiting = _receive(session, queue, group, name, limit, lease, wait)
    return waiting if wait else waiting.work


def _receive(
    session: Session, queue: str, group: str | None, consumer: str, limit: int, lease: float | None, wait: float
) -> Waiting:
    door = session.door

    def deal(queue: str, receipts: list[Receipt] | None) -> Reply:
        assert receipts is not None
        return done(receipts)

    def take(queue: str) -> Call:
        return door.take(queue, group, consumer, limit, lease, makes=False)

    def done(receipts: list[Receipt]) -> Reply:
        [receipt] = receipts
        door.holdings.note(session, receipt)
        return _told(receipt) if receipt.rows else NOTHING

    return Waiting(Work(take(queue), done), [queue], group, wait, NOTHING, take, deal)


def _told(receipt: Receipt) -> Reply:
    return [
        {
            "id": receipt.id_of(row),
            "payload": row[PAYLOAD],
            "attempt": row[ATTEMPT],
            "token": receipt.token,
            "lease_ends_at": to_time(row[LEASE_ENDS_AT]).isoformat(),
            "priority": row[PRIORITY],
            "content_type": row[CONTENT_TYPE] or BYTES,
            "headers": decode_headers(row[HEADERS]),
            "key": row[KEY],
            "created_at": to_time(row[CREATED_AT]).isoformat(),
            "created_by": row[CREATED_BY] or SYSTEM,
        }
        for row in receipt.rows
    ]


@command("QNAK", Order.SEND, Right.RECEIVE, FAMILY)
def nak(
    session: Session,
    queue: QueueName,
    group: GroupName,
    id: MessageId,
    *,
    delay: Seconds | None = None,
    reason: Text | None = None,
    token: Token = 0,
) -> Begun:
    """Try again: after the queue's backoff, or after DELAY seconds. Gives back the message's state."""
    if delay is not None:
        check_seconds("DELAY", delay)
    return _settle(session, queue, group, Settle(Event.NAK, id, 0, token, reason, delay))


@command("QREJECT", Order.SEND, Right.RECEIVE, FAMILY)
def reject(
    session: Session,
    queue: QueueName,
    group: GroupName,
    id: MessageId,
    *,
    reason: Text | None = None,
    token: Token = 0,
) -> Begun:
    """Never try again: a dead letter at once. Gives back the message's state."""
    return _settle(session, queue, group, Settle(Event.REJECT, id, 0, token, reason))


@command("QRESCHEDULE", Order.SEND, Right.RECEIVE, FAMILY)
def reschedule(
    session: Session,
    queue: QueueName,
    group: GroupName,
    id: MessageId,
    *,
    delay: Seconds = 3600.0,
    reason: Text | None = None,
    token: Token = 0,
) -> Begun:
    """Later, with attempts starting again. Gives back the message's state."""
    check_seconds("DELAY", delay, minimum=-1e18)
    return _settle(session, queue, group, Settle(Event.RESCHEDULE, id, 0, token, reason, max(0.0, delay)))


def _settle(session: Session, queue: str, group: str, settle: Settle) -> Work:
    return session.door.holdings.settle(session, queue, group, settle, _told_state)


def _told_state(settled: Settled) -> Reply:
    if settled.error is not None:
        raise settled.error
    return str(settled.state)


@command("QEXTEND", Order.TURN, Right.RECEIVE, FAMILY)
def extend(
    session: Session, queue: QueueName, group: GroupName, id: MessageId, seconds: Seconds, *, token: Token = 0
) -> Begun:
    """Keep a lease until so many seconds from now; gives back its end."""
    check_seconds("seconds", seconds, above=True)
    holdings = session.door.holdings
    return holdings.extend(session, queue, group, id, seconds, token, lambda ends_at: to_time(ends_at).isoformat())
