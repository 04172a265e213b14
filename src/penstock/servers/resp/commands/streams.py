"""XADD, XLEN, XRANGE and XREVRANGE: queues as streams."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

from penstock.domain.message import Draft, Message
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Blob, QueueName, Words, read_count, read_name
from penstock.servers.resp.chorus import dealt
from penstock.servers.resp.commands.bounds import after_bound, upto_bound
from penstock.servers.resp.commands.entries import message_entry, pack, read_bound
from penstock.servers.resp.commands.stream_pieces import browse, range_in_pieces
from penstock.servers.resp.commands.stream_removing import Trim, read_trim
from penstock.servers.resp.door import NOW, Door, sent
from penstock.servers.resp.encoder import NO_ARRAY, RESP2, Reply, encode
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command, several
from penstock.servers.resp.words import CommandError, failure, quoted, wrong_arity
from penstock.servers.resp.work import Work
from penstock.servers.taking import FEW

if TYPE_CHECKING:
    from penstock.servers.resp.slot import Slot

FAMILY = "stream"
MOST_ENTRIES = 1_000_000
BEGINNING = 0
read_queue = read_name("queue")


@command(
    "XADD",
    Order.SEND,
    Right.SEND,
    FAMILY,
    usage="XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] * field value [field value ...]",
    least=3,
)
def add(session: Session, queue: QueueName, words: Words) -> Begun:
    """Add an entry to a stream."""
    at, must_exist, trim = _add_options(words)
    if at >= len(words):
        raise wrong_arity("xadd")
    if words[at] != b"*":
        raise CommandError("ERR Only * is supported as the ID of a new entry: the queue gives ids in its own order")
    fields = words[at + 1 :]
    if not fields or len(fields) % 2:
        raise wrong_arity("xadd")
    message: Draft = (*pack(fields), NOW)
    if trim is not None:
        session.check(Right.MANAGE, queue)
    if must_exist or trim is not None:
        return _add_carefully(session, queue, message, must_exist, trim)
    return session.door.send(queue, message, _stream_id)


def _add_key(session: Session, words: list[bytes]) -> Hashable:
    if len(words) < 5 or not len(words) % 2 or words[2] != b"*":
        return None
    queue = read_queue(words[1])
    session.check_one(Right.SEND, queue)
    return queue


@several("XADD", _add_key)
def add_several(door: Door, slots: list[Slot]) -> Work:
    queue = read_queue(slots[0].calls[0][1])
    drafts: list[Draft] = [(*pack(one[3:]), NOW) for slot in slots for one in slot.calls]
    return door.send_several(queue, drafts, partial(_told_ids, slots), merges=True)


def _told_ids(slots: list[Slot], ids: list[Any]) -> list[bytes]:
    return dealt(slots, [encode(_told_id(one), RESP2) for one in ids])


def _told_id(outcome: Any) -> Reply:
    return failure(outcome) if isinstance(outcome, BaseException) else _stream_id(outcome)


def _stream_id(message_id: str) -> str:
    """From an id that Penstock made, which holds both parts."""
    return f"{_milliseconds(message_id[:13])}-{int(message_id[-12:], 16)}"


@lru_cache(256)
def _milliseconds(digits: str) -> int:
    return int(digits.replace("-", ""), 16)


def _add_options(words: list[bytes]) -> tuple[int, bool, Trim | None]:
    at, must_exist, trim = 0, False, None
    while at < len(words):
        match words[at].upper():
            case b"NOMKSTREAM":
                must_exist = True
                at += 1
            case b"MAXLEN" | b"MINID":
                if trim is not None:
                    raise CommandError("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")
                at, trim = read_trim(words, at)
            case _:
                break
    return at, must_exist, trim


def _add_carefully(session: Session, queue: str, message: Draft, must_exist: bool, trim: Trim | None) -> Begun:
    door = session.door

    def operation() -> str | None:
        if must_exist and not exists(session, queue):
            return None
        message_id: str = sent(door.send_now(queue, [message])[0])
        if trim is not None:
            trim.apply(session, queue)
        return message_id

    return door.change(operation, lambda found: None if found is None else _stream_id(found))


def exists(session: Session, queue: str) -> bool:
    """Inside a call."""
    return session.door.engine.has(queue)


@command("XLEN", Order.ALONE, Right.LOOK, FAMILY)
def length(session: Session, queue: QueueName) -> Begun:
    """How many entries a stream has."""
    return session.door.look(lambda: session.door.engine.unread(queue), lambda count: count)


@command("XRANGE", Order.ALONE, Right.LOOK, FAMILY, usage="XRANGE key start end [COUNT count]")
def range_(session: Session, queue: QueueName, start: Blob, end: Blob, words: Words) -> Begun:
    """The entries between two ids."""
    return _range(session, queue, start, end, words, backwards=False)


@command("XREVRANGE", Order.ALONE, Right.LOOK, FAMILY, usage="XREVRANGE key end start [COUNT count]")
def range_backwards(session: Session, queue: QueueName, end: Blob, start: Blob, words: Words) -> Begun:
    """The entries between two ids, the last one first."""
    return _range(session, queue, start, end, words, backwards=True)


def _range(session: Session, queue: str, start: bytes, end: bytes, words: list[bytes], *, backwards: bool) -> Begun:
    limit = MOST_ENTRIES
    if words:
        if len(words) != 2 or words[0].upper() != b"COUNT":
            raise CommandError(f"ERR syntax error: {quoted(words[0])} where COUNT count may stand")
        limit = read_count(words[1])
    if not limit:
        return NO_ARRAY
    first, last = None if start == b"-" else read_bound(start), None if end == b"+" else read_bound(end)

    def bounds() -> tuple[int, int | None]:
        after = BEGINNING if first is None else after_bound(session, queue, first)
        return after, None if last is None else upto_bound(session, queue, last)

    if limit > FEW and not session.is_executing:
        return range_in_pieces(session, queue, bounds, limit, backwards=backwards)

    def operation() -> list[Message]:
        return browse(session, queue, *bounds(), limit, backwards=backwards)

    return session.door.look(operation, lambda found: [message_entry(one) for one in found])
