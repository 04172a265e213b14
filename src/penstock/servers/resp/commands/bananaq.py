"""QADD, QGET, QACK, QNOTIFY and QFLUSH, as the bananaq commands are described."""

from __future__ import annotations

import logging
from collections.abc import Hashable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, cast

from penstock.domain.errors import OutOfOrder, StoreError
from penstock.domain.lifecycle import Event
from penstock.domain.message import Draft, Options
from penstock.domain.settlement import Settle, Settled
from penstock.domain.times import check_seconds
from penstock.engines.contract import HEADERS, PAYLOAD, POSITION, Receipt
from penstock.servers.access import Right
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
from penstock.servers.resp.chorus import Rest, dealt
from penstock.servers.resp.commands.events import event_key, told_id
from penstock.servers.resp.door import Door, portions
from penstock.servers.resp.encoder import NO_ARRAY, OK, RESP2, Encoded, Reply, encode, integers, nothing
from penstock.servers.resp.holdings import Acked, Holding
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command, several
from penstock.servers.resp.words import CommandError, failure, wrong_arity
from penstock.servers.resp.work import Waiting, Work

if TYPE_CHECKING:
    from penstock.servers.resp.server import Server
    from penstock.servers.resp.slot import Slot

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


def _add_key(session: Session, words: list[bytes]) -> Hashable:
    if len(words) != 4:
        return None
    queue = read_queue(words[1])
    _lasting(words[2])
    session.check_one(Right.SEND, queue)
    return queue, words[2]


@several("QADD", _add_key)
def add_several(door: Door, slots: list[Slot]) -> Work:
    _, name, seconds, _ = slots[0].calls[0]
    options = _lasting(seconds)
    drafts: list[Draft] = [(one[3], None, options) for slot in slots for one in slot.calls]
    return door.send_several(read_queue(name), drafts, partial(_told_ids, slots), merges=True)


def _told_ids(slots: list[Slot], ids: list[Any]) -> list[bytes]:
    try:
        told = [f"$36\r\n{one}\r\n".encode() if len(one) == 36 else encode(one, RESP2) for one in ids]
    except TypeError:  # not all of them were sent
        told = [encode(failure(one) if isinstance(one, BaseException) else one, RESP2) for one in ids]
    return dealt(slots, told)


@lru_cache(maxsize=1024)
def _lasting(seconds: bytes) -> Options:
    return _options(read_seconds(seconds))


@lru_cache(maxsize=1024)
def _options(expire_seconds: float) -> Options:
    """One for all messages with the same time to live: the store tells them apart by what they do not share."""
    return Options(ttl_seconds=check_seconds("expireSeconds", expire_seconds, above=True))


def in_background(session: Session, queue: str, work: Work) -> Begun:
    """Answered before it is stored; but while the store is known to fail, only when it is stored."""
    server = session.server
    if server.store_fails:
        return work.then(partial(_stored, server))
    if server.background >= server.limits.background_sends:
        raise CommandError(
            f"ERR overloaded: {server.background} events wait to be stored in the background; "
            "try again, or without NOBLOCK"
        )
    server.background += 1
    session.door.submit(work, _Background(session, queue))
    return OK


def _stored(server: Server, reply: Reply) -> Reply:
    server.store_fails = False
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
        self.server.store_fails = self.server.store_fails or isinstance(error, StoreError)
        logger.error("an event for queue %r could not be stored in the background: %s", self.queue, error)


@command("QGET", Order.RECEIVE, Right.RECEIVE, FAMILY)
def get(session: Session, queue: QueueName, group: GroupName, *, ex: Seconds = LEASE_SECONDS) -> Begun:
    """Take the next event of a queue for a group; EX 0 acknowledges it at once."""
    return take_next(session, queue, group, ex)


def _get_key(session: Session, words: list[bytes]) -> Hashable:
    if len(words) != 3:
        return None
    queue, group = read_queue(words[1]), read_group(words[2])
    session.check_one(Right.RECEIVE, queue)
    return queue, group


@several("QGET", _get_key)
def get_several(door: Door, slots: list[Slot]) -> Work:
    _, queue, group = slots[0].calls[0]
    wishes = [(slot.connection.session.consumer, 1, len(slot.calls)) for slot in slots]
    call = door.take_each(read_queue(queue), read_group(group), LEASE_SECONDS, wishes)
    return door.receive(read_queue(queue), call, partial(_given_events, door, slots))


def take_next(session: Session, queue: str, group: str, seconds: float) -> Work:
    door = session.door
    if seconds == 0:
        return door.receive_and_ack(queue, group, session.consumer, 1, _told_event)
    check_seconds("EX", seconds, above=True)
    call = door.take(queue, group, session.consumer, 1, seconds)
    return door.receive(queue, call, partial(_given_event, session))


def _given_event(session: Session, receipts: list[Receipt]) -> Reply:
    """Under a lease, which this connection holds."""
    session.door.holdings.note(session, receipts[0])
    return _told_event(receipts[0])


def _given_events(door: Door, slots: list[Slot], shares: list[list[Receipt]]) -> list[bytes | Rest]:
    answers: list[bytes | Rest] = []
    held: dict[bytes, Holding] = {}
    for slot, receipts in zip(slots, shares, strict=True):
        if slot.cancelled():
            door.let_go(receipts)
            answers.append(b"")
            continue
        told: list[bytes] = []
        holder = slot.connection.session.holder
        for receipt, rows in portions(receipts, 1, len(slot.calls)):
            if not rows and receipt.is_cut:
                break
            if not rows:
                told.append(nothing(slot.protocol))
                continue
            row = rows[0]
            name, payload = told_id(row, receipt), row[PAYLOAD]
            key = name if row[HEADERS] is None else receipt.id_of(row).encode()
            held[key] = Holding(receipt.token, row[POSITION], receipt.consumer, holder)
            told.append(b"*2\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (len(name), name, len(payload), payload))
        data = told[0] if len(told) == 1 else b"".join(told)
        answers.append(data if len(told) == len(slot.calls) else Rest(data, slot.calls[len(told) :]))
    receipt = shares[0][0]
    door.holdings.put(receipt.queue, receipt.group, held)
    return answers


def _told_event(receipt: Receipt) -> Reply:
    if not receipt.rows:
        return NO_ARRAY
    row = receipt.rows[0]
    return [told_id(row, receipt), row[PAYLOAD]]


@command("QACK", Order.SEND, Right.RECEIVE, FAMILY, usage="QACK queue [consumerGroup] eventID [TOKEN token]", least=1)
def acknowledge(session: Session, queue: QueueName, words: Words) -> Begun:
    """Say that an event was processed: 1, or 0 when it timed out or was acknowledged before."""
    token = 0
    if len(words) > 2 and words[-2].upper() == b"TOKEN":
        *words, _, shown = words
        token = read_token(shown)
    if len(words) not in (1, 2):
        raise wrong_arity("qack")
    group = read_group(words[0]) if len(words) == 2 else OLDER_GROUP
    key = event_key(words[-1])
    if token and key:
        settle = Settle(Event.ACK, key.decode(), 0, token)
        return session.door.holdings.settle(session, queue, group, settle, _told_ack)
    work = session.door.holdings.ack_each(queue, group, [(session, [key])], _told_acks)
    return Work(work.call, lambda results: cast(list[Any], work.finish(results))[0])


def _told_ack(settled: Settled) -> Reply:
    if isinstance(settled.error, OutOfOrder):
        raise settled.error
    return int(settled.ok)


def _acknowledge_key(session: Session, words: list[bytes]) -> Hashable:
    if len(words) != 4:
        return None
    queue, group = read_queue(words[1]), read_group(words[2])
    session.check_one(Right.RECEIVE, queue)
    return queue, group


@several("QACK", _acknowledge_key)
def acknowledge_several(door: Door, slots: list[Slot]) -> Work:
    queue, group = read_queue(slots[0].calls[0][1]), read_group(slots[0].calls[0][2])
    wanted = [(slot.connection.session, [event_key(one[3]) for one in slot.calls]) for slot in slots]
    return door.holdings.ack_each(queue, group, wanted, _told_acks)


def _told_acks(outcomes: list[Acked]) -> Encoded:
    if any(isinstance(one, OutOfOrder) for one in outcomes):
        told = [failure(one) if isinstance(one, OutOfOrder) else int(one) for one in outcomes]
        return Encoded(b"".join([encode(one, RESP2) for one in told]))
    return integers(cast(list[bool], outcomes))


@command("QNOTIFY", Order.ALONE, Right.RECEIVE, FAMILY, usage="QNOTIFY [consumerGroup] timeout [queue ...]", least=1)
def notify(session: Session, words: Words) -> Begun:
    """Wait until one of the queues has an event for the group, and give back its name; nil when the time is up."""
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
