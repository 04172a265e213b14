"""QSEND, QRECEIVE and the settlements, with all options of the model."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from penstock.client.view import DeliveryView
from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import Event
from penstock.domain.message import SYSTEM, Outgoing, draft
from penstock.domain.settlement import Settle, Settled, error_code
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_integer, check_seconds
from penstock.engines.contract import Receipt
from penstock.servers.permissions import Needs
from penstock.servers.resp.arguments import Blob, Count, GroupName, MessageId, Name, QueueName, Seconds, Text, Token
from penstock.servers.resp.backend import sent
from penstock.servers.resp.commands.replies import to_reply
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.pending import BlockingCall, Pending
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command
from penstock.servers.shared_receive import ReceiveRequest

FAMILY = "model"
MAX_LIMIT = 10_000
NOTHING: list[Any] = []


@command("QSEND", Order.SEND, Needs.SEND, FAMILY)
def send(
    session: ClientSession,
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
    batchqueue: Text | None = None,
) -> Begun:
    """Send a message; DEADLINE is a Unix time, HEADERS a JSON object of strings. Returns its id.

    BATCHQUEUE is the queue of the batch, if that is another one.
    """
    if batchqueue is not None:
        session.check(Needs.SEND, batchqueue)
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
    drafts = [draft(outgoing, batch, None, batchqueue)]
    return session.backend.send(queue, drafts, lambda ids: sent(ids[0]))


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


@command("QRECEIVE", Order.RECEIVE, Needs.RECEIVE, FAMILY, brings_messages=True)
def receive(
    session: ClientSession,
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
    call = _receive(session, queue, group, name, limit, lease, wait)
    return call if wait else call.first


def _receive(
    session: ClientSession, queue: str, group: str | None, consumer: str, limit: int, lease: float | None, wait: float
) -> BlockingCall:
    backend = session.backend

    def deal(queue: str, receipts: list[Receipt] | None) -> Reply:
        assert receipts is not None
        [receipt] = receipts
        backend.message_leases.note(session, receipt)
        return _receipt_reply(receipt) if receipt.rows else NOTHING

    def receive(queue: str) -> Pending:
        request = ReceiveRequest(consumer, limit)
        return backend.receive(queue, group, request, lease, lambda outcome: deal(queue, outcome[0]), makes=False)

    return BlockingCall(receive(queue), [queue], group, wait, NOTHING, receive, deal)


def _receipt_reply(receipt: Receipt) -> Reply:
    return [_delivery_reply(DeliveryView(row, receipt)) for row in receipt.rows]


def _delivery_reply(delivery: DeliveryView) -> Reply:
    return {
        "id": delivery.id,
        "payload": delivery.payload,
        "attempt": delivery.attempt,
        "token": delivery.token,
        "lease_ends_at": delivery.lease_ends_at.isoformat(),
        "priority": delivery.priority,
        "content_type": delivery.content_type,
        "headers": delivery.headers,
        "key": delivery.key,
        "created_at": delivery.created_at.isoformat(),
        "created_by": delivery.created_by,
        "expires_at": to_reply(delivery.expires_at),
        "deadline_at": to_reply(delivery.deadline_at),
        "address": delivery.address,
        "batch": delivery.batch,
    }


@command("QNAK", Order.SEND, Needs.SETTLE, FAMILY)
def nak(
    session: ClientSession,
    queue: QueueName,
    group: GroupName,
    id: MessageId,
    *,
    delay: Seconds | None = None,
    reason: Text | None = None,
    code: Text | None = None,
    token: Token = 0,
) -> Begun:
    """Retry a message after the queue's backoff or DELAY seconds; CODE identifies the error. Returns its state."""
    if delay is not None:
        check_seconds("DELAY", delay)
    return _settle(session, queue, group, Settle(Event.NAK, id, 0, token, reason, delay, error_code(code, None)))


@command("QREJECT", Order.SEND, Needs.SETTLE, FAMILY)
def reject(
    session: ClientSession,
    queue: QueueName,
    group: GroupName,
    id: MessageId,
    *,
    reason: Text | None = None,
    code: Text | None = None,
    token: Token = 0,
) -> Begun:
    """Reject a message: it becomes a dead letter at once. Returns its state."""
    return _settle(session, queue, group, Settle(Event.REJECT, id, 0, token, reason, code=error_code(code, None)))


@command("QRESCHEDULE", Order.SEND, Needs.SETTLE, FAMILY)
def reschedule(
    session: ClientSession,
    queue: QueueName,
    group: GroupName,
    id: MessageId,
    *,
    delay: Seconds = 3600.0,
    reason: Text | None = None,
    token: Token = 0,
) -> Begun:
    """Deliver a message again after DELAY seconds, with attempts reset. Returns its state."""
    check_seconds("DELAY", delay, minimum=-1e18)
    return _settle(session, queue, group, Settle(Event.RESCHEDULE, id, 0, token, reason, max(0.0, delay)))


def _settle(session: ClientSession, queue: str, group: str, settle: Settle) -> Pending:
    return session.backend.message_leases.settle(session, queue, group, settle, _state_reply)


def _state_reply(settled: Settled) -> Reply:
    if settled.error is not None:
        raise settled.error
    return str(settled.state)


@command("QEXTEND", Order.TURN, Needs.SETTLE, FAMILY)
def extend(
    session: ClientSession, queue: QueueName, group: GroupName, id: MessageId, seconds: Seconds, *, token: Token = 0
) -> Begun:
    """Extend a lease to a number of seconds from now. Returns its end."""
    check_seconds("seconds", seconds, above=True)
    message_leases = session.backend.message_leases
    return message_leases.extend(
        session, queue, group, id, seconds, token, lambda ends_at: to_time(ends_at).isoformat()
    )
