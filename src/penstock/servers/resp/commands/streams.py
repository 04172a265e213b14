"""XADD, XLEN, XRANGE, XREVRANGE, XREAD-like reads, XACK, XDEL and XTRIM: queues as streams."""

from __future__ import annotations

from penstock.domain.message import PLAIN, Draft, Message
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Blob, QueueName, Words, read_count
from penstock.servers.resp.commands.entries import BEYOND, Bound, entry_id, message_entry, pack, read_bound, read_parts
from penstock.servers.resp.encoder import NO_ARRAY, Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.words import CommandError, quoted, wrong_arity

FAMILY = "stream"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
MOST_ENTRIES = 1_000_000
BEGINNING = 0


@command(
    "XADD",
    Order.SEND,
    Right.SEND,
    FAMILY,
    usage="XADD key [NOMKSTREAM] [MAXLEN|MINID [=|~] threshold [LIMIT count]] * field value [field value ...]",
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
    message: Draft = (*pack(fields), PLAIN)
    if must_exist or trim is not None:
        return _add_carefully(session, queue, message, must_exist, trim)
    return session.door.send(queue, message, _stream_id)


def _stream_id(message_id: str) -> str:
    """From an id that Penstock made, which holds both parts."""
    return f"{int(message_id[:8] + message_id[9:13], 16)}-{int(message_id[-12:], 16)}"


def _add_options(words: list[bytes]) -> tuple[int, bool, int | None]:
    at, must_exist, trim = 0, False, None
    while at < len(words):
        match words[at].upper():
            case b"NOMKSTREAM":
                must_exist = True
                at += 1
            case b"KEEPREF" | b"DELREF" | b"ACKED":
                at += 1
            case b"MAXLEN" | b"MINID":
                at, trim = read_trim(words, at)
            case _:
                break
    return at, must_exist, trim


def read_trim(words: list[bytes], at: int) -> tuple[int, int | None]:
    """`MAXLEN ~ 1000 LIMIT 10`: where it ends, and the length; trimming by id is not a length."""
    is_length = words[at].upper() == b"MAXLEN"
    at += 1
    if at < len(words) and words[at] in (b"~", b"="):
        at += 1
    if at >= len(words):
        raise CommandError("ERR syntax error: MAXLEN and MINID need a threshold")
    if is_length and not words[at].isdigit():
        raise CommandError(NOT_AN_INTEGER)
    threshold = int(words[at]) if is_length else None
    if not is_length:
        read_parts(words[at])
    at += 1
    if at + 1 < len(words) and words[at].upper() == b"LIMIT":
        read_count(words[at + 1])
        at += 2
    return at, threshold


def _add_carefully(session: Session, queue: str, message: Draft, must_exist: bool, trim: int | None) -> Begun:
    engine = session.door.engine

    def operation() -> str | None:
        if must_exist and all(info.name != queue for info in engine.queues()):
            return None
        session.door.make(queue)
        return engine.send(queue, [message])[0]

    return session.door.change(operation, lambda found: None if found is None else _stream_id(found))


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
    engine = session.door.engine

    def operation() -> list[Message]:
        after = BEGINNING if first is None else after_bound(session, queue, first)
        upto = None if last is None else upto_bound(session, queue, last)
        return engine.browse(queue, after, upto, limit, backwards=backwards)

    return session.door.look(operation, lambda found: [message_entry(one) for one in found])


def after_bound(session: Session, queue: str, bound: Bound) -> int:
    """The place before the first entry of a range that starts here."""
    if bound.position is not None and _is_at(session, queue, bound):
        return bound.position if bound.is_open else bound.position - 1
    return session.door.engine.position_at(queue, bound.milliseconds * 1000)


def upto_bound(session: Session, queue: str, bound: Bound) -> int:
    """The place of the last entry of a range that ends here."""
    if bound.position is not None and _is_at(session, queue, bound):
        return bound.position - 1 if bound.is_open else bound.position
    milliseconds = bound.milliseconds
    if bound.position is not None:
        return session.door.engine.position_at(queue, milliseconds * 1000)
    return session.door.engine.position_at(queue, (milliseconds + 1) * 1000)


def _is_at(session: Session, queue: str, bound: Bound) -> bool:
    """Whether an entry has exactly this id; otherwise only its time says where it lies."""
    position = bound.position or 0
    if not 0 < position < BEYOND:
        return False
    found = session.door.engine.browse(queue, position - 1, position, 1)
    return any(message_entry(one)[0] == entry_id(bound.milliseconds * 1000, position) for one in found)


@command("XTRIM", Order.TURN, Right.MANAGE, FAMILY, usage="XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count]")
def trim(session: Session, queue: QueueName, words: Words) -> Begun:
    """Accepted and answered with 0: entries leave by the queue's retention, never before every group has read them."""
    if not words or words[0].upper() not in (b"MAXLEN", b"MINID"):
        raise CommandError("ERR syntax error: XTRIM needs MAXLEN or MINID")
    at, _ = read_trim(words, 0)
    if at != len(words):
        raise CommandError(f"ERR syntax error: {quoted(words[at])} is not expected here")
    return 0


@command("XDEL", Order.TURN, Right.MANAGE, FAMILY, usage="XDEL key id [id ...]")
def delete(session: Session, queue: QueueName, words: Words) -> Reply:
    """Accepted and answered with 0: the log is never changed, entries leave by retention."""
    if not words:
        raise wrong_arity("xdel")
    for word in words:
        read_parts(word)
    return 0
