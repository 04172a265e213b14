"""XREADGROUP: read streams as a consumer of a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import NamedTuple

import msgspec

from penstock.domain.errors import PenstockError
from penstock.domain.message import Message
from penstock.domain.results import LeaseInfo
from penstock.domain.timestamps import EPOCH
from penstock.engines.contract import PAYLOAD, Receipt
from penstock.servers.access import Right
from penstock.servers.reply_size import count_for_next, first_piece
from penstock.servers.resp.arguments import Words, read_count, read_name
from penstock.servers.resp.backend import Backend, portions
from penstock.servers.resp.commands.bounds import after_bound
from penstock.servers.resp.commands.entries import (
    BEYOND,
    MICROSECOND,
    Bound,
    Entry,
    message_entry,
    read_bound,
    read_parts,
    row_entries,
    row_names,
)
from penstock.servers.resp.commands.stream_groups import check_group, no_group
from penstock.servers.resp.encoder import NO_ARRAY, Encoded, Pairs, Partial, Replies, Reply
from penstock.servers.resp.errors import CommandError, quoted
from penstock.servers.resp.pending import BlockingCall, Pending
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command
from penstock.servers.shared_receive import ReceiveRequest

FAMILY = "stream"
READ_USAGE = (
    "XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]"
)
# The default of COUNT. Redis has none; here a reply is limited.
WITHOUT_COUNT = 10_000
read_consumer = read_name("consumer")
# Longer commands are not cached; one with a single stream is shorter.
MAX_CACHED_WORDS = 12


class _Reading(msgspec.Struct, frozen=True):
    group: str
    consumer: str
    count: int
    block: float | None  # seconds; 0 is for ever
    blocks: bool
    noack: bool
    streams: list[tuple[str, bytes]]

    @property
    def is_shared(self) -> bool:
        """Whether it reads new entries of one stream, in a receive shared with other clients."""
        return len(self.streams) == 1 and self.streams[0][1] == b">" and not self.noack


class _Read(NamedTuple):
    """What was read of one stream, with the bytes of its payloads. New entries have a receipt."""

    entries: list[Entry] | Encoded
    size: int
    receipt: Receipt | None


def _common(words: list[bytes]) -> list[bytes] | None:
    """New entries of one stream, without blocking."""
    if len(words) > MAX_CACHED_WORDS:
        return None
    try:
        reading = _cached_reading(tuple(words))
    except PenstockError:  # raised by the command itself
        return None
    return words if reading.is_shared and not reading.blocks else None


@command(
    "XREADGROUP",
    Order.RECEIVE,
    Right.RECEIVE,
    FAMILY,
    usage=READ_USAGE,
    least=6,
    brings_messages=True,
    common=_common,
)
def read(session: ClientSession, words: Words, *, calls: list[list[bytes]]) -> Begun:
    """Receive entries of streams as a consumer of a group; an id instead of > reads its pending entries."""
    reading = _cached_reading(tuple(calls[0])) if len(calls[0]) <= MAX_CACHED_WORDS else _read_words(words)
    queues = [queue for queue, _ in reading.streams]
    for queue in queues:
        session.check_one(Right.RECEIVE, queue)
    pending = _begin_reading(session, reading, len(calls))
    if not reading.blocks or any(place != b">" for _, place in reading.streams):
        return pending
    return BlockingCall(
        pending,
        queues,
        reading.group,
        None if reading.block == 0 else reading.block,
        NO_ARRAY,
        partial(_receive, session, reading, 1),
        partial(_deal_and_ack if reading.noack else _deal, session),
        needs_group=True,
    )


@lru_cache(4096)
def _cached_reading(words: tuple[bytes, ...]) -> _Reading:
    """Cached, because consumers repeat the same command."""
    return _read_words(list(words[1:]))


def _read_words(words: list[bytes]) -> _Reading:
    if len(words) < 3 or words[0].upper() != b"GROUP":
        raise CommandError("ERR Missing GROUP option for XREADGROUP")
    group, consumer = read_name("group")(words[1]), read_consumer(words[2])
    count, block, noack, at = read_options("XREADGROUP", words, 3, 1_000_000)
    streams = read_streams("xreadgroup", words[at:], "an ID or '>'", _check_place)
    return _Reading(group, consumer, count, block, block is not None, noack, streams)


def read_options(name: str, words: list[bytes], at: int, most: int) -> tuple[int, float | None, bool, int]:
    """Parse the options before STREAMS: COUNT, BLOCK in seconds, NOACK, and where the streams begin."""
    count, block, noack = WITHOUT_COUNT, None, False
    while at < len(words):
        word, value = words[at].upper(), words[at + 1] if at + 1 < len(words) else None
        if word == b"STREAMS":
            return count, block, noack, at + 1
        if word == b"NOACK" and name == "XREADGROUP":
            noack = True
            at += 1
            continue
        if word not in (b"COUNT", b"BLOCK") or value is None:
            raise CommandError(f"ERR syntax error: unknown option {quoted(words[at])} for '{name.lower()}'")
        if word == b"COUNT":
            count = min(read_count(value), most) or WITHOUT_COUNT
        else:
            block = _milliseconds(value) / 1000
        at += 2
    raise CommandError(f"ERR syntax error: {name} needs STREAMS key [key ...] id [id ...]")


def _milliseconds(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        negative = value[:1] == b"-" and value[1:].isdigit()
        raise CommandError("ERR timeout is negative" if negative else "ERR timeout is not an integer or out of range")
    return min(int(value), 10**12)


def read_streams(name: str, words: list[bytes], ids: str, check: Callable[[bytes], object]) -> list[tuple[str, bytes]]:
    half, odd = divmod(len(words), 2)
    if odd or not half:
        raise CommandError(f"ERR Unbalanced '{name}' list of streams: for each stream key {ids} must be specified.")
    for place in words[half:]:
        check(place)
    return [(read_name("queue")(key), place) for key, place in zip(words[:half], words[half:], strict=True)]


def _check_place(place: bytes) -> None:
    if place == b"$":
        raise CommandError("ERR The $ ID is meaningless in the context of XREADGROUP: use > to read new entries")
    if place != b">":
        read_bound(place)


def _begin_reading(session: ClientSession, reading: _Reading, times: int) -> Pending:
    for queue, _ in reading.streams:
        session.backend.consumers.note_seen(queue, reading.group, reading.consumer)
    if reading.is_shared:
        return _receive(session, reading, times, reading.streams[0][0])

    def operation() -> list[_Read]:
        found: list[_Read] = []
        for queue, place in reading.streams:
            count = count_for_next(reading.count, sum([one.size for one in found]))
            found.append(_read_one(session, msgspec.structs.replace(reading, count=count), queue, place))
        return found

    def finish(found: Sequence[_Read]) -> Reply:
        pairs = []
        for (queue, place), (entries, _, receipt) in zip(reading.streams, found, strict=True):
            if receipt is not None and not reading.noack:
                session.backend.entry_leases.note(session.holder, receipt, row_names(receipt.rows))
            if receipt is not None and receipt.rows:
                session.backend.consumers.note_active(queue, reading.group, [reading.consumer])
            if entries or place != b">":
                pairs.append((queue, entries))
        return Pairs(pairs) if pairs else NO_ARRAY

    return session.backend.write(operation, finish)


def _receive(session: ClientSession, reading: _Reading, times: int, queue: str) -> Pending:
    request = ReceiveRequest(reading.consumer, reading.count, times)
    finish = partial(_replies, session, reading, times)
    lease = session.server.stream_lease_seconds
    return session.backend.receive(queue, reading.group, request, lease, finish, refusal=_no_group)


def _no_group(queue: str, group: str | None) -> CommandError:
    return no_group(queue, str(group), "XREADGROUP")


def _replies(session: ClientSession, reading: _Reading, times: int, outcome: list[list[Receipt]]) -> Reply:
    """One reply for each of `times` commands."""
    [receipts] = outcome
    if times == 1:
        return _deal(session, receipts[0].queue, receipts)
    replies = Replies()
    for receipt, rows in portions(receipts, reading.count, times):
        if not rows and receipt.is_cut:
            break
        replies.append(Pairs([(receipt.queue, row_entries(rows, row_names(rows)))]) if rows else NO_ARRAY)
    for receipt in receipts:
        _note(session, receipt, row_names(receipt.rows))
    return replies if len(replies) == times else Partial(replies)


def _deal(session: ClientSession, queue: str, receipts: list[Receipt] | None) -> Reply:
    if not receipts or not receipts[0].rows:
        return NO_ARRAY
    [receipt] = receipts
    names = row_names(receipt.rows)
    _note(session, receipt, names)
    return Pairs([(queue, row_entries(receipt.rows, names))])


def _note(session: ClientSession, receipt: Receipt, names: list[bytes]) -> None:
    """Remember who holds the entries, and that the consumer is active."""
    if receipt.rows:
        session.backend.entry_leases.note(session.holder, receipt, names)
        session.backend.consumers.note_active(receipt.queue, receipt.group, [receipt.consumer])


def _deal_and_ack(session: ClientSession, queue: str, receipts: list[Receipt] | None) -> Reply | Pending:
    """NOACK of a blocked client: ack only after checking that it is still connected."""
    reply = _deal(session, queue, receipts)
    if not receipts or not receipts[0].rows:
        return reply
    [receipt] = receipts
    names = row_names(receipt.rows)
    find = partial(find_lease, session.backend, queue, receipt.group)
    return session.backend.entry_leases.ack(session, queue, receipt.group, names, find, lambda _: reply)


def find_lease(backend: Backend, queue: str, group: str, name: bytes) -> LeaseInfo | None:
    """Inside an operation: the lease of the entry with exactly this id."""
    milliseconds, position = read_parts(name)
    if position is None or not 0 < position < BEYOND:
        return None
    leases = backend.engine.leases(queue, group, after=position - 1, limit=1)
    is_it = leases and leases[0].position == position and _milliseconds_of(leases[0]) == milliseconds
    return leases[0] if is_it else None


def _milliseconds_of(lease: LeaseInfo) -> int:
    return (lease.created_at - EPOCH) // MICROSECOND // 1000


def _read_one(session: ClientSession, reading: _Reading, queue: str, place: bytes) -> _Read:
    if place != b">":
        held = _held(session, reading, queue, place)
        return _Read([message_entry(one) for one in held], sum([len(one.payload) for one in held]), None)
    [[receipt]] = _receive(session, reading, 1, queue).call()
    if reading.noack and receipt.rows:
        session.backend.ack_receipt(receipt)
    size = sum([len(row[PAYLOAD]) for row in receipt.rows])
    entries: list[Entry] | Encoded = row_entries(receipt.rows, row_names(receipt.rows)) if receipt.rows else []
    return _Read(entries, size, receipt)


def _held(session: ClientSession, reading: _Reading, queue: str, place: bytes) -> list[Message]:
    """The pending entries of the consumer after an id, as many as fit into a reply. Counts as a delivery."""
    engine = session.backend.engine
    check_group(session, queue, reading.group, "XREADGROUP")
    milliseconds, position = read_parts(place)
    after = after_bound(session, queue, Bound(milliseconds, position, is_open=True))
    leases = engine.leases(queue, reading.group, consumer=reading.consumer, after=after, limit=reading.count)
    now = engine.now() // 1000
    found = first_piece((engine.find(queue, one.id) for one in leases), lambda message: len(message.payload))
    for one in leases[: len(found)]:
        session.backend.claims.note_again(one, now)
    return found
