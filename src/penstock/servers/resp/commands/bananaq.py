"""QADD, QGET, QACK, QNOTIFY and QFLUSH: the bananaq commands."""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from penstock.domain.errors import OutOfOrder, StoreError
from penstock.domain.lifecycle import Event
from penstock.domain.message import Draft, Options
from penstock.domain.settlement import Settle, Settled
from penstock.domain.validation import check_seconds
from penstock.engines.contract import HEADERS, PAYLOAD, Receipt
from penstock.servers.permissions import Needs
from penstock.servers.resp.arguments import (
    Blob,
    Flag,
    GroupName,
    QueueName,
    Seconds,
    Words,
    read_name,
    read_seconds,
    read_token,
)
from penstock.servers.resp.backend import sent
from penstock.servers.resp.commands.entries_read import forget_entries_read
from penstock.servers.resp.commands.events import event_key, shown_id
from penstock.servers.resp.encoder import NO_ARRAY, OK, Partial, Replies, Reply
from penstock.servers.resp.errors import CommandError, wrong_arity
from penstock.servers.resp.pending import BlockingCall, Pending
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command
from penstock.servers.shared_receive import ReceiveRequest

if TYPE_CHECKING:
    from penstock.servers.resp.server import Server

logger = logging.getLogger("penstock.resp")
FAMILY = "queue"
LEASE_SECONDS = 30.0
# The group of the older commands, which have no group argument.
OLDER_GROUP = "default"
read_queue, read_group = read_name("queue"), read_name("group")


def _all_but_last_of_four(words: list[bytes]) -> list[bytes] | None:
    return words[:3] if len(words) == 4 else None


@command("QADD", Order.SEND, Needs.SEND, FAMILY, common=_all_but_last_of_four)
def add(
    session: ClientSession,
    queue: QueueName,
    expire_seconds: Seconds,
    contents: Blob,
    *,
    noblock: Flag = False,
    calls: list[list[bytes]],
) -> Begun:
    """Add an event to a queue. Returns its id, or OK with NOBLOCK, which does not wait for the commit."""
    options = _options(expire_seconds)
    drafts: list[Draft] = [(one[3], None, options) for one in calls]
    if noblock:
        pending = session.backend.send(queue, drafts, _check_sent, session.backend.send_events)
        return in_background(session, queue, pending)
    return session.backend.send(queue, drafts, Replies, session.backend.send_events)


def _check_sent(ids: list[Any]) -> Reply:
    return sent(ids[0])


@lru_cache(maxsize=1024)
def _options(expire_seconds: float) -> Options:
    """Share one object among all messages with the same time to live."""
    return Options(ttl_seconds=check_seconds("expireSeconds", expire_seconds, above=True))


def in_background(session: ClientSession, queue: str, pending: Pending) -> Begun:
    """Reply before the commit. While the store is failing, and inside a transaction, reply after it."""
    server = session.server
    if session.is_executing:
        return pending.then(_ok)
    if server.store_fails:
        return pending.then(partial(_stored, server))
    if server.background >= server.limits.background_sends:
        raise CommandError(
            f"ERR overloaded: {server.background} events wait to be stored in the background; "
            "try again, or without NOBLOCK"
        )
    server.background += 1
    executor = session.backend.store.executor
    executor.submit(pending.operation, pending.items, _Background(session, queue), pending.weight)
    return OK


def _ok(reply: Reply) -> Reply:
    return OK


def _stored(server: Server, reply: Reply) -> Reply:
    server.store_fails = False
    return OK


class _Background:
    """The completion of a send with NOBLOCK."""

    def __init__(self, session: ClientSession, queue: str) -> None:
        self.server = session.server
        self.queue = queue

    def cancelled(self) -> bool:
        return False

    def set_result(self, outcome: Any) -> None:
        """`outcome` holds the id of the message, or the error that refused it."""
        if outcome is not None and isinstance(outcome[0], BaseException):
            self.set_exception(outcome[0])
        else:
            self.server.background -= 1

    def set_exception(self, error: Any) -> None:
        self.server.background -= 1
        self.server.store_fails = self.server.store_fails or isinstance(error, StoreError)
        logger.error("an event for queue %r could not be stored in the background: %s", self.queue, error)


def _all_of_three(words: list[bytes]) -> list[bytes] | None:
    return words if len(words) == 3 else None


@command("QGET", Order.RECEIVE, Needs.RECEIVE, FAMILY, brings_messages=True, common=_all_of_three)
def get(
    session: ClientSession, queue: QueueName, group: GroupName, *, ex: Seconds = LEASE_SECONDS, calls: list[list[bytes]]
) -> Begun:
    """Receive the next event of a queue for a group; EX 0 acknowledges it at once."""
    return receive_events(session, queue, group, ex, len(calls))


def receive_events(session: ClientSession, queue: str, group: str, seconds: float, times: int = 1) -> Pending:
    if seconds == 0:
        return session.backend.receive_and_ack(queue, group, session.consumer, 1, _event_reply)
    check_seconds("EX", seconds, above=True)
    request = ReceiveRequest(session.consumer, 1, times)
    return session.backend.receive(queue, group, request, seconds, partial(_event_replies, session, times))


def _event_replies(session: ClientSession, times: int, outcome: list[list[Receipt]]) -> Reply:
    """Build one reply for each of `times` commands, and remember the leases of this connection."""
    [receipts] = outcome
    replies = Replies()
    share = times // len(receipts)
    for receipt in receipts:
        keys = session.backend.message_leases.note(session, receipt)
        replies += [
            [key if row[HEADERS] is None else shown_id(row, receipt), row[PAYLOAD]]
            for key, row in zip(keys, receipt.rows, strict=True)
        ]
        if not receipt.is_cut:
            replies += [NO_ARRAY] * (share - len(keys))
    return replies if len(replies) == times else Partial(replies)


def _event_reply(receipt: Receipt) -> Reply:
    if not receipt.rows:
        return NO_ARRAY
    row = receipt.rows[0]
    return [shown_id(row, receipt), row[PAYLOAD]]


@command(
    "QACK",
    Order.SEND,
    Needs.SETTLE,
    FAMILY,
    usage="QACK queue [consumerGroup] eventID [TOKEN token]",
    least=1,
    common=_all_but_last_of_four,
)
def acknowledge(session: ClientSession, queue: QueueName, words: Words, *, calls: list[list[bytes]]) -> Begun:
    """Acknowledge an event. Returns 1, or 0 if its lease has ended or it was acknowledged before."""
    token = 0
    if len(words) > 2 and words[-2].upper() == b"TOKEN":
        *words, _, shown = words
        token = read_token(shown)
    if len(words) not in (1, 2):
        raise wrong_arity("qack")
    group = read_group(words[0]) if len(words) == 2 else OLDER_GROUP
    if token and (key := event_key(words[-1])):
        settle = Settle(Event.ACK, key.decode(), 0, token)
        return session.backend.message_leases.settle(session, queue, group, settle, _ack_reply)
    ids = [words[-1]] if len(calls) == 1 else [one[3] for one in calls]
    return session.backend.message_leases.ack(session, queue, group, ids, event_key)


def _ack_reply(settled: Settled) -> Reply:
    if isinstance(settled.error, OutOfOrder):
        raise settled.error
    return int(settled.ok)


@command("QNOTIFY", Order.ALONE, Needs.RECEIVE, FAMILY, usage="QNOTIFY [consumerGroup] timeout [queue ...]", least=1)
def notify(session: ClientSession, words: Words) -> Begun:
    """Block until one of the queues has an event for the group. Returns its name, or nil after the timeout."""
    if len(words) == 1:
        group, timeout, names = OLDER_GROUP, words[0], []
    else:
        group, timeout, names = read_group(words[0]), words[1], words[2:]
    seconds = check_seconds("timeout", read_seconds(timeout))
    queues = [read_queue(name) for name in names] or list(session.registered)
    if not queues:
        raise CommandError("ERR no queues to wait for: name some, or QREGISTER them first")
    session.check(Needs.RECEIVE, *queues)
    return BlockingCall(_first_poll(session, queues, group), queues, group, seconds, None, None, lambda queue, _: queue)


def _first_poll(session: ClientSession, queues: list[str], group: str) -> Pending:
    engine = session.backend.engine

    def operation() -> str | None:
        """`ready_in` also counts expired messages until a receive skips them, so peek as well."""
        return next(
            (queue for queue in queues if engine.ready_in(queue, group) == 0 and engine.peek(queue, group, 1)), None
        )

    return session.backend.read(operation)


@command("QFLUSH", Order.TURN, Needs.FLUSH, FAMILY)
def flush(session: ClientSession, queue: QueueName) -> Begun:
    """Remove all events of a queue and the state of its groups."""
    engine, consumers = session.backend.engine, session.backend.consumers

    def operation() -> None:
        for group in engine.groups(queue):
            consumers.forget(queue, group)
        forget_entries_read(session, queue)
        engine.clear(queue)

    return session.backend.write(operation, lambda _: OK)
