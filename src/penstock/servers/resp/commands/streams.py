"""XADD, XLEN, XRANGE and XREVRANGE: queues as streams."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from penstock.domain.message import Draft, Message
from penstock.servers.access import Right
from penstock.servers.reply_size import SMALL_LIMIT
from penstock.servers.resp.arguments import Blob, QueueName, Words, read_count
from penstock.servers.resp.backend import NOW, sent
from penstock.servers.resp.commands.bounds import after_bound, upto_bound
from penstock.servers.resp.commands.entries import message_entry, pack, read_bound
from penstock.servers.resp.commands.idempotence import Idempotence, read_idempotence
from penstock.servers.resp.commands.keyspace import exists
from penstock.servers.resp.commands.stream_chunks import browse, check_size, range_in_pieces
from penstock.servers.resp.commands.stream_deletion import Trim, read_policy, read_trim
from penstock.servers.resp.encoder import NO_ARRAY, Replies, Reply
from penstock.servers.resp.errors import CommandError, quoted, wrong_arity
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
MAX_ENTRIES = 1_000_000
BEGINNING = 0
# The greatest id; the least is 0-0.
LAST_ID = b"18446744073709551615-18446744073709551615"


class _Adding(msgspec.Struct):
    """The options of XADD, which come before the id."""

    must_exist: bool = False
    trim: Trim | None = None
    idempotence: Idempotence | None = None

    @property
    def is_plain(self) -> bool:
        return not self.must_exist and self.trim is None and self.idempotence is None


def _common(words: list[bytes]) -> list[bytes] | None:
    """Entries of one stream, without options."""
    return words[:3] if len(words) >= 5 and len(words) % 2 and words[2] == b"*" else None


@command(
    "XADD",
    Order.SEND,
    Right.SEND,
    FAMILY,
    usage="XADD key [NOMKSTREAM] [KEEPREF|DELREF] [IDMP producer-id idempotent-id|IDMPAUTO producer-id] "
    "[MAXLEN|MINID [=|~] threshold [LIMIT count]] * field value [field value ...]",
    least=3,
    common=_common,
)
def add(session: ClientSession, queue: QueueName, words: Words, *, calls: list[list[bytes]]) -> Begun:
    """Add an entry to a stream."""
    at, adding = _add_options(words)
    if at >= len(words):
        raise wrong_arity("xadd")
    if words[at] != b"*":
        raise CommandError("ERR Only * is supported as the ID of a new entry: the queue gives ids in its own order")
    fields = words[at + 1 :]
    if not fields or len(fields) % 2:
        raise wrong_arity("xadd")
    message: Draft = (*pack(fields), NOW)
    if adding.trim is not None:
        session.check(Right.MANAGE, queue)
    if not adding.is_plain:
        return _add_carefully(session, queue, message, adding, fields)
    drafts = [message] if len(calls) == 1 else [(*pack(one[3:]), NOW) for one in calls]
    return session.backend.send(queue, drafts, _id_replies, session.backend.send_entries)


def _id_replies(ids: list[Any]) -> Reply:
    return Replies([one if isinstance(one, BaseException) else _stream_id(one) for one in ids])


def _stream_id(message_id: str) -> str:
    """Convert a message id made by Penstock, which holds time and position."""
    return f"{_milliseconds(message_id[:13])}-{int(message_id[-12:], 16)}"


@lru_cache(256)
def _milliseconds(digits: str) -> int:
    return int(digits.replace("-", ""), 16)


def _add_options(words: list[bytes]) -> tuple[int, _Adding]:
    at, adding = 0, _Adding()
    while at < len(words):
        match words[at].upper():
            case b"NOMKSTREAM":
                adding.must_exist = True
                at += 1
            case b"MAXLEN" | b"MINID":
                if adding.trim is not None:
                    raise CommandError("ERR syntax error, MAXLEN and MINID options at the same time are not compatible")
                at, adding.trim = read_trim(words, at)
            case b"IDMP" | b"IDMPAUTO":
                if adding.idempotence is not None:
                    raise CommandError("ERR syntax error, IDMP and IDMPAUTO are given once")
                at, adding.idempotence = read_idempotence(words, at)
            case word if read_policy(word):
                at += 1
            case _:
                break
    return at, adding


def _add_carefully(session: ClientSession, queue: str, message: Draft, adding: _Adding, fields: list[bytes]) -> Begun:
    def operation() -> str | None:
        if adding.must_exist and not exists(session, queue):
            return None
        if adding.idempotence is not None:
            entry = adding.idempotence.send(session, queue, message, fields)
        else:
            entry = _stream_id(sent(session.backend.send_entries(queue, [message])[0]))
        if adding.trim is not None:
            adding.trim.apply(session, queue)
        return entry

    return session.backend.write(operation)


@command("XLEN", Order.ALONE, Right.LOOK, FAMILY)
def length(session: ClientSession, queue: QueueName) -> Begun:
    """Returns the number of entries of a stream."""
    return session.backend.read(lambda: session.backend.engine.unread(queue))


@command("XRANGE", Order.ALONE, Right.LOOK, FAMILY, usage="XRANGE key start end [COUNT count]", brings_messages=True)
def range_(session: ClientSession, queue: QueueName, start: Blob, end: Blob, words: Words) -> Begun:
    """Return the entries between two ids."""
    return _range(session, queue, start, end, words, backwards=False)


@command(
    "XREVRANGE", Order.ALONE, Right.LOOK, FAMILY, usage="XREVRANGE key end start [COUNT count]", brings_messages=True
)
def range_backwards(session: ClientSession, queue: QueueName, end: Blob, start: Blob, words: Words) -> Begun:
    """Return the entries between two ids, the last one first."""
    return _range(session, queue, start, end, words, backwards=True)


def _range(
    session: ClientSession, queue: str, start: bytes, end: bytes, words: list[bytes], *, backwards: bool
) -> Begun:
    limit = MAX_ENTRIES
    if words:
        if len(words) != 2 or words[0].upper() != b"COUNT":
            raise CommandError(f"ERR syntax error: {quoted(words[0])} where COUNT count may stand")
        limit = read_count(words[1])
    if not limit:
        return NO_ARRAY
    if start == b"(" + LAST_ID:
        raise CommandError("ERR invalid start ID for the interval")
    if end in (b"(0-0", b"(0"):
        raise CommandError("ERR invalid end ID for the interval")
    first, last = None if start == b"-" else read_bound(start), None if end == b"+" else read_bound(end)

    def bounds() -> tuple[int, int | None]:
        after = BEGINNING if first is None else after_bound(session, queue, first)
        return after, None if last is None else upto_bound(session, queue, last)

    if limit > SMALL_LIMIT and not session.is_executing:
        return range_in_pieces(session, queue, bounds, limit, backwards=backwards)

    def operation() -> list[Message]:
        after, upto = bounds()
        if limit > SMALL_LIMIT:
            check_size(session, queue, after, upto, limit, backwards=backwards)
        return browse(session, queue, after, upto, limit, backwards=backwards)

    return session.backend.read(operation, lambda found: [message_entry(one) for one in found])
