"""QADD, QGET, QACK, QNOTIFY and QFLUSH, as the bananaq commands are described."""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from typing import Any

from penstock.domain.lifecycle import Event
from penstock.domain.message import Draft, Options
from penstock.domain.settlement import Settle, Settled
from penstock.domain.times import check_seconds
from penstock.engines.contract import PAYLOAD, Receipt
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Blob, Flag, GroupName, QueueName, Seconds, Words, read_name, read_seconds
from penstock.servers.resp.commands.events import event_id, told_id
from penstock.servers.resp.door import Door, first, row_id
from penstock.servers.resp.encoder import NO_ARRAY, OK, Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.words import CommandError, wrong_arity
from penstock.servers.resp.work import Waiting, Work

logger = logging.getLogger("penstock.resp")
FAMILY = "queue"
LEASE_SECONDS = 30.0
# The group of the older commands, which know none.
OLDER_GROUP = "default"


@command("QADD", Order.SEND, Right.SEND, FAMILY)
def add(session: Session, queue: QueueName, expire_seconds: Seconds, contents: Blob, *, noblock: Flag = False) -> Begun:
    """Add an event to a queue. Gives back its id, or OK with NOBLOCK, which does not wait until it is stored."""
    message: Draft = (contents, None, _options(expire_seconds))
    return add_in_background(session, queue, message) if noblock else session.door.send(queue, message, first)


@lru_cache(maxsize=1024)
def _options(expire_seconds: float) -> Options:
    """One for all messages with the same time to live: the store tells them apart by what they do not share."""
    return Options(ttl_seconds=check_seconds("expireSeconds", expire_seconds, above=True))


def add_in_background(session: Session, queue: str, message: Draft) -> Reply:
    server = session.server
    if server.background >= server.limits.background_sends:
        raise CommandError(
            f"ERR overloaded: {server.background} events wait to be stored in the background; "
            "try again, or without NOBLOCK"
        )
    server.background += 1
    session.door.submit(session.door.send(queue, message, first), _Background(session, queue))
    return OK


class _Background:
    """Where the outcome of a send goes whose client did not want to wait for it."""

    def __init__(self, session: Session, queue: str) -> None:
        self.server = session.server
        self.queue = queue

    def cancelled(self) -> bool:
        return False

    def set_result(self, ids: list[str]) -> None:
        self.server.background -= 1

    def set_exception(self, error: Any) -> None:
        self.server.background -= 1
        logger.error("an event for queue %r could not be stored in the background: %s", self.queue, error)


@command("QGET", Order.RECEIVE, Right.RECEIVE, FAMILY)
def get(session: Session, queue: QueueName, group: GroupName, *, ex: Seconds = LEASE_SECONDS) -> Begun:
    """Take the next event of a queue for a group; EX 0 acknowledges it at once."""
    return take_next(session, queue, group, ex)


def take_next(session: Session, queue: str, group: str, seconds: float) -> Work:
    if seconds == 0:
        return session.door.receive_and_ack(queue, group, session.consumer, 1, _told_event)
    check_seconds("EX", seconds, above=True)
    return session.door.receive(queue, group, session.consumer, 1, seconds, partial(_given_event, session.door))


def _given_event(door: Door, receipt: Receipt) -> Reply:
    """Under a lease, which is remembered."""
    if not receipt.rows:
        return NO_ARRAY
    row = receipt.rows[0]
    message_id = row_id(row, receipt)
    door.remember_one(receipt, row, message_id)
    return [told_id(row, message_id), row[PAYLOAD]]


def _told_event(receipt: Receipt) -> Reply:
    if not receipt.rows:
        return NO_ARRAY
    row = receipt.rows[0]
    return [told_id(row, row_id(row, receipt)), row[PAYLOAD]]


@command("QACK", Order.SEND, Right.RECEIVE, FAMILY, usage="QACK queue [consumerGroup] eventID")
def acknowledge(session: Session, queue: QueueName, words: Words) -> Begun:
    """Say that an event was processed: 1, or 0 when it timed out or was acknowledged before."""
    if len(words) not in (1, 2):
        raise wrong_arity("qack")
    group = read_name("group")(words[0]) if len(words) == 2 else OLDER_GROUP
    message_id = event_id(words[-1])
    if message_id is None:
        return 0
    return session.door.settle(queue, group, Settle(Event.ACK, message_id, 0, 0), _told_ack)


def _told_ack(settled: Settled | None) -> Reply:
    return int(settled is not None and settled.ok)


@command("QNOTIFY", Order.ALONE, Right.RECEIVE, FAMILY, usage="QNOTIFY [consumerGroup] timeout [queue ...]")
def notify(session: Session, words: Words) -> Begun:
    """Wait until one of the queues has an event for the group, and give back its name; nil when the time is up."""
    if not words:
        raise wrong_arity("qnotify")
    if len(words) == 1:
        group, timeout, names = OLDER_GROUP, words[0], []
    else:
        group, timeout, names = read_name("group")(words[0]), words[1], words[2:]
    seconds = check_seconds("timeout", read_seconds(timeout))
    queues = [read_name("queue")(name) for name in names] or list(session.registered)
    if not queues:
        raise CommandError("ERR no queues to wait for: name some, or QREGISTER them first")
    session.check(Right.RECEIVE, *queues)
    return Waiting(_first_look(session, queues, group), queues, group, seconds, None, None, lambda queue, _: queue)


def _first_look(session: Session, queues: list[str], group: str) -> Work:
    engine = session.door.engine

    def operation() -> str | None:
        return next((queue for queue in queues if engine.ready_in(queue, group) == 0), None)

    return session.door.look(operation, lambda queue: queue)


@command("QFLUSH", Order.TURN, Right.MANAGE, FAMILY)
def flush(session: Session, queue: QueueName) -> Begun:
    """Remove all events of a queue."""
    return session.door.change(lambda: session.door.engine.flush(queue), lambda _: OK)
