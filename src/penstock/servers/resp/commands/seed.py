"""QADD, QGET, QACK, QNOTIFY and QFLUSH, as the bananaq commands are described."""

from __future__ import annotations

import logging
from functools import lru_cache, partial
from itertools import takewhile
from typing import Any

from penstock.domain.message import Draft, Options
from penstock.domain.observations import LeaseInfo
from penstock.domain.times import check_seconds
from penstock.engines.contract import PAYLOAD, POSITION, Receipt
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Blob, Flag, GroupName, QueueName, Seconds, Words, read_name, read_seconds
from penstock.servers.resp.commands.events import event_id, told_id
from penstock.servers.resp.door import Door, portions
from penstock.servers.resp.encoder import NO_ARRAY, OK, RESP2, Encoded, Reply, encode, integers, nothing
from penstock.servers.resp.remembering import Lease
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command, several
from penstock.servers.resp.words import CommandError, failure, wrong_arity
from penstock.servers.resp.work import Waiting, Work

logger = logging.getLogger("penstock.resp")
FAMILY = "queue"
LEASE_SECONDS = 30.0
# The group of the older commands, which know none.
OLDER_GROUP = "default"
read_queue, read_group = read_name("queue"), read_name("group")


@command("QADD", Order.SEND, Right.SEND, FAMILY)
def add(session: Session, queue: QueueName, expire_seconds: Seconds, contents: Blob, *, noblock: Flag = False) -> Begun:
    """Add an event to a queue. Gives back its id, or OK with NOBLOCK, which does not wait until it is stored."""
    message: Draft = (contents, None, _options(expire_seconds))
    work = session.door.send(queue, message, _same)
    return in_background(session, queue, work) if noblock else work


def _same(message_id: str) -> Reply:
    return message_id


@several("QADD")
def add_several(session: Session, calls: list[list[bytes]]) -> tuple[int, Work | None]:
    first = calls[0]
    if len(first) != 4:
        return 0, None
    head = first[1:3]
    calls = list(takewhile(lambda one: len(one) == 4 and one[1:3] == head, calls))
    queue = read_queue(first[1])
    session.check_one(Right.SEND, queue)
    options = _options(read_seconds(first[2]))
    drafts: list[Draft] = [(one[3], None, options) for one in calls]
    return len(calls), session.door.send_several(queue, drafts, _told_ids, merges=True)


def _told_ids(ids: list[Any]) -> Reply:
    try:
        return Encoded(("$36\r\n" + "\r\n$36\r\n".join(ids) + "\r\n").encode())
    except TypeError:  # not all of them were sent
        told = [failure(one) if isinstance(one, BaseException) else one for one in ids]
        return Encoded(b"".join(encode(one, RESP2) for one in told))


@lru_cache(maxsize=1024)
def _options(expire_seconds: float) -> Options:
    """One for all messages with the same time to live: the store tells them apart by what they do not share."""
    return Options(ttl_seconds=check_seconds("expireSeconds", expire_seconds, above=True))


def in_background(session: Session, queue: str, work: Work) -> Reply:
    server = session.server
    if server.background >= server.limits.background_sends:
        raise CommandError(
            f"ERR overloaded: {server.background} events wait to be stored in the background; "
            "try again, or without NOBLOCK"
        )
    server.background += 1
    session.door.submit(work, _Background(session, queue))
    return OK


class _Background:
    """Where the outcome of a send goes whose client did not want to wait for it."""

    def __init__(self, session: Session, queue: str) -> None:
        self.server = session.server
        self.queue = queue

    def cancelled(self) -> bool:
        return False

    def set_result(self, outcome: Any) -> None:
        """One message was sent: its id, or what refused it."""
        if outcome is not None and isinstance(outcome[0], BaseException):
            self.set_exception(outcome[0])
        else:
            self.server.background -= 1

    def set_exception(self, error: Any) -> None:
        self.server.background -= 1
        logger.error("an event for queue %r could not be stored in the background: %s", self.queue, error)


@command("QGET", Order.RECEIVE, Right.RECEIVE, FAMILY)
def get(session: Session, queue: QueueName, group: GroupName, *, ex: Seconds = LEASE_SECONDS) -> Begun:
    """Take the next event of a queue for a group; EX 0 acknowledges it at once."""
    return take_next(session, queue, group, ex)


@several("QGET")
def get_several(session: Session, calls: list[list[bytes]]) -> tuple[int, Work | None]:
    first = calls[0]
    if len(first) != 3:
        return 0, None
    calls = list(takewhile(lambda one: one == first, calls))
    queue, group = read_queue(first[1]), read_group(first[2])
    session.check_one(Right.RECEIVE, queue)
    return len(calls), _take(session, queue, group, LEASE_SECONDS, len(calls))


def take_next(session: Session, queue: str, group: str, seconds: float) -> Work:
    if seconds == 0:
        return session.door.receive_and_ack(queue, group, session.consumer, 1, _told_event)
    check_seconds("EX", seconds, above=True)
    return _take(session, queue, group, seconds, 1)


def _take(session: Session, queue: str, group: str, seconds: float, times: int) -> Work:
    door = session.door
    call = door.take(queue, group, session.consumer, 1, seconds, times=times)
    return door.receive(queue, call, partial(_given_events, door, times, nothing(session.protocol)))


def _given_events(door: Door, times: int, nothing: bytes, receipts: list[Receipt]) -> Reply:
    """Under leases, which are remembered."""
    parts: list[bytes] = []
    leases: dict[bytes, Lease] = {}
    for receipt, rows in portions(receipts, 1, times):
        if not rows:
            parts.append(nothing)
            continue
        row = rows[0]
        name, payload = told_id(row, receipt), row[PAYLOAD]
        leases[name] = receipt.token, row[POSITION]
        parts.append(b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(payload), payload))
    door.remembered.put(receipts[0].queue, receipts[0].group, leases)
    return Encoded(b"".join(parts))


def _told_event(receipt: Receipt) -> Reply:
    if not receipt.rows:
        return NO_ARRAY
    row = receipt.rows[0]
    return [told_id(row, receipt), row[PAYLOAD]]


@command("QACK", Order.SEND, Right.RECEIVE, FAMILY, usage="QACK queue [consumerGroup] eventID")
def acknowledge(session: Session, queue: QueueName, words: Words) -> Begun:
    """Say that an event was processed: 1, or 0 when it timed out or was acknowledged before."""
    if len(words) not in (1, 2):
        raise wrong_arity("qack")
    group = read_group(words[0]) if len(words) == 2 else OLDER_GROUP
    return _acknowledge(session, queue, group, [words[-1]])


@several("QACK")
def acknowledge_several(session: Session, calls: list[list[bytes]]) -> tuple[int, Work | None]:
    first = calls[0]
    if len(first) != 4:
        return 0, None
    head = first[1:3]
    calls = list(takewhile(lambda one: len(one) == 4 and one[1:3] == head, calls))
    queue, group = read_queue(first[1]), read_group(first[2])
    session.check_one(Right.RECEIVE, queue)
    return len(calls), _acknowledge(session, queue, group, [one[3] for one in calls])


def _acknowledge(session: Session, queue: str, group: str, names: list[bytes]) -> Work:
    return session.door.ack(queue, group, names, partial(_find_lease, session.door, queue, group), integers)


def _find_lease(door: Door, queue: str, group: str, name: bytes) -> LeaseInfo | None:
    message_id = event_id(name)
    leases = [] if message_id is None else door.engine.leases(queue, group, ids=[message_id])
    return leases[0] if leases else None


@command("QNOTIFY", Order.ALONE, Right.RECEIVE, FAMILY, usage="QNOTIFY [consumerGroup] timeout [queue ...]")
def notify(session: Session, words: Words) -> Begun:
    """Wait until one of the queues has an event for the group, and give back its name; nil when the time is up."""
    if not words:
        raise wrong_arity("qnotify")
    if len(words) == 1:
        group, timeout, names = OLDER_GROUP, words[0], []
    else:
        group, timeout, names = read_group(words[0]), words[1], words[2:]
    seconds = check_seconds("timeout", read_seconds(timeout))
    queues = [read_queue(name) for name in names] or list(session.registered)
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
