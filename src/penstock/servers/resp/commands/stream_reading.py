"""XREADGROUP: reading a stream as a group."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING

import msgspec

from penstock.client.aio.call import Call
from penstock.domain.observations import LeaseInfo
from penstock.domain.times import EPOCH
from penstock.engines.contract import POSITION, Receipt
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Words, read_count, read_name
from penstock.servers.resp.chorus import Rest
from penstock.servers.resp.commands.bounds import after_bound
from penstock.servers.resp.commands.entries import (
    BEYOND,
    MICROSECOND,
    Bound,
    Entry,
    encode_row,
    message_entry,
    read_bound,
    read_parts,
    row_entry,
    row_name,
)
from penstock.servers.resp.commands.stream_groups import check_group, no_group
from penstock.servers.resp.door import Door, portions
from penstock.servers.resp.encoder import NO_ARRAY, RESP2, RESP3, Pairs, Reply, nothing
from penstock.servers.resp.remembering import Lease
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command, several
from penstock.servers.resp.words import CommandError, quoted
from penstock.servers.resp.work import Waiting, Work
from penstock.servers.taking import MOST_BYTES

if TYPE_CHECKING:
    from penstock.servers.resp.slot import Slot

FAMILY = "stream"
READ_USAGE = (
    "XREADGROUP GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] STREAMS key [key ...] id [id ...]"
)
# Redis gives everything without COUNT; a reply has to end somewhere.
WITHOUT_COUNT = 10_000
read_consumer = read_name("consumer")
# Where the consumer stands in a command that was found right.
CONSUMER_AT = 3
# What names one stream is shorter; what is longer is not worth remembering.
MOST_REMEMBERED_WORDS = 12


class _Reading(msgspec.Struct, frozen=True):
    group: str
    consumer: str
    count: int
    block: float | None  # seconds; 0 is for ever
    blocks: bool
    noack: bool
    streams: list[tuple[str, bytes]]


@command("XREADGROUP", Order.RECEIVE, Right.RECEIVE, FAMILY, usage=READ_USAGE, least=6)
def read(session: Session, words: Words) -> Begun:
    """Receive entries of streams as a consumer of a group; an id instead of > reads what the consumer holds."""
    reading = _read_words(words)
    queues = [queue for queue, _ in reading.streams]
    session.check(Right.RECEIVE, *queues)
    work = _begin_reading(session, reading)
    if not reading.blocks or any(place != b">" for _, place in reading.streams):
        return work
    return Waiting(
        work,
        queues,
        reading.group,
        None if reading.block == 0 else reading.block,
        NO_ARRAY,
        partial(_take, session, reading),
        partial(_deal_and_ack if reading.noack else _deal, session),
        needs_group=True,
    )


def _read_key(session: Session, words: list[bytes]) -> Hashable:
    """New entries of one stream, without waiting."""
    if len(words) > MOST_REMEMBERED_WORDS:
        return None
    reading = _remembered_reading(tuple(words))
    if reading.blocks or reading.noack or len(reading.streams) != 1 or reading.streams[0][1] != b">":
        return None
    queue = reading.streams[0][0]
    session.check_one(Right.RECEIVE, queue)
    return queue, reading.group, reading.count, session.server.stream_lease_seconds


@several("XREADGROUP", _read_key)
def read_several(door: Door, slots: list[Slot]) -> Work:
    reading, lease = _remembered_reading(tuple(slots[0].calls[0])), slots[0].connection.server.stream_lease_seconds
    queue, group, count = reading.streams[0][0], reading.group, reading.count
    wishes = [(read_consumer(slot.calls[0][CONSUMER_AT]), count, len(slot.calls)) for slot in slots]
    for consumer, _, _ in wishes:
        door.consumers.meet(queue, group, consumer)
    call = door.take_each(queue, group, lease, wishes, no_group(queue, group, "XREADGROUP"))
    return door.receive(queue, call, partial(_deal_several, door, slots, reading.count))


def _deal_several(door: Door, slots: list[Slot], count: int, shares: list[list[Receipt]]) -> list[bytes | Rest]:
    queue, group = shares[0][0].queue, shares[0][0].group
    name = b"$%d\r\n%b\r\n" % (len(queue.encode()), queue.encode())
    openings = {RESP2: b"*1\r\n*2\r\n" + name, RESP3: b"%1\r\n" + name}
    answers: list[bytes | Rest] = []
    leases: dict[bytes, Lease] = {}
    for slot, receipts in zip(slots, shares, strict=True):
        if slot.cancelled():
            door.let_go(receipts)
            answers.append(b"")
            continue
        parts: list[bytes] = []
        done = 0
        for receipt, rows in portions(receipts, count, len(slot.calls)):
            if not rows and receipt.is_cut:
                break
            done += 1
            parts.append(b"%b*%d\r\n" % (openings[slot.protocol], len(rows)) if rows else nothing(slot.protocol))
            for row in rows:
                entry = row_name(row, receipt)
                leases[entry] = receipt.token, row[POSITION]
                parts.append(encode_row(row, entry))
        data = b"".join(parts)
        answers.append(data if done == len(slot.calls) else Rest(data, slot.calls[done:]))
    door.remembered.put(queue, group, leases)
    return answers


@lru_cache(4096)
def _remembered_reading(words: tuple[bytes, ...]) -> _Reading:
    """A consumer says the same again and again."""
    return _read_words(list(words[1:]))


def _read_words(words: list[bytes]) -> _Reading:
    if len(words) < 3 or words[0].upper() != b"GROUP":
        raise CommandError("ERR Missing GROUP option for XREADGROUP")
    group, consumer = read_name("group")(words[1]), read_consumer(words[2])
    count, block, noack, at = WITHOUT_COUNT, None, False, 3
    while at < len(words):
        word, value = words[at].upper(), words[at + 1] if at + 1 < len(words) else None
        if word == b"STREAMS":
            return _Reading(group, consumer, count, block, block is not None, noack, _streams(words[at + 1 :]))
        if word == b"NOACK":
            noack = True
            at += 1
            continue
        if word not in (b"COUNT", b"BLOCK") or value is None:
            raise CommandError(f"ERR syntax error: unknown option {quoted(words[at])} for 'xreadgroup'")
        if word == b"COUNT":
            count = min(read_count(value), 1_000_000) or WITHOUT_COUNT
        else:
            block = read_milliseconds(value) / 1000
        at += 2
    raise CommandError("ERR syntax error: XREADGROUP needs STREAMS key [key ...] id [id ...]")


def read_milliseconds(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        negative = value[:1] == b"-" and value[1:].isdigit()
        raise CommandError("ERR timeout is negative" if negative else "ERR timeout is not an integer or out of range")
    return min(int(value), 10**12)


def _streams(words: list[bytes]) -> list[tuple[str, bytes]]:
    half, odd = divmod(len(words), 2)
    if odd or not half:
        raise CommandError(
            "ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID, '>', or '$' must be specified."
        )
    for place in words[half:]:
        if place == b"$":
            raise CommandError("ERR The $ ID is meaningless in the context of XREADGROUP: use > to read new entries")
        if place != b">":
            read_bound(place)
    return [(read_name("queue")(key), place) for key, place in zip(words[:half], words[half:], strict=True)]


def _begin_reading(session: Session, reading: _Reading) -> Work:
    for queue, _ in reading.streams:
        session.door.consumers.meet(queue, reading.group, reading.consumer)
    if len(reading.streams) == 1 and reading.streams[0][1] == b">" and not reading.noack:
        queue = reading.streams[0][0]
        return Work(_take(session, reading, queue), partial(_deal, session, queue))

    def operation() -> list[tuple[str, list[Entry], Receipt | None]]:
        return [(queue, *_read_one(session, reading, queue, place)) for queue, place in reading.streams]

    def finish(found: Sequence[tuple[str, list[Entry], Receipt | None]]) -> Reply:
        pairs = []
        for (queue, entries, receipt), (_, place) in zip(found, reading.streams, strict=True):
            if receipt is not None and not reading.noack:
                session.door.remember(receipt, row_name)
            if entries or place != b">":
                pairs.append((queue, entries))
        return Pairs(pairs) if pairs else NO_ARRAY

    return session.door.change(operation, finish)


def _take(session: Session, reading: _Reading, queue: str) -> Call:
    lease = session.server.stream_lease_seconds
    refusal = no_group(queue, reading.group, "XREADGROUP")
    return session.door.take(queue, reading.group, reading.consumer, reading.count, lease, refusal=refusal)


def _deal(session: Session, queue: str, receipts: list[Receipt] | None) -> Reply:
    if not receipts or not receipts[0].rows:
        return NO_ARRAY
    [receipt] = receipts
    session.door.remember(receipt, row_name)
    return Pairs([(queue, [row_entry(row) for row in receipt.rows])])


def _deal_and_ack(session: Session, queue: str, receipts: list[Receipt] | None) -> Reply | Work:
    """For a client that waited: acked only now that it is there to take it."""
    reply = _deal(session, queue, receipts)
    if not receipts or not receipts[0].rows:
        return reply
    [receipt] = receipts
    names = [row_name(row, receipt) for row in receipt.rows]
    find = partial(find_lease, session.door, queue, receipt.group)
    return session.door.ack(queue, receipt.group, names, find, lambda _: reply)


def find_lease(door: Door, queue: str, group: str, name: bytes) -> LeaseInfo | None:
    """Inside a call: the lease of the entry with exactly this id."""
    milliseconds, position = read_parts(name)
    if position is None or not 0 < position < BEYOND:
        return None
    leases = door.engine.leases(queue, group, after=position - 1, limit=1)
    is_it = leases and leases[0].position == position and _milliseconds_of(leases[0]) == milliseconds
    return leases[0] if is_it else None


def _milliseconds_of(lease: LeaseInfo) -> int:
    return (lease.created_at - EPOCH) // MICROSECOND // 1000


def _read_one(session: Session, reading: _Reading, queue: str, place: bytes) -> tuple[list[Entry], Receipt | None]:
    if place != b">":
        return _held(session, reading, queue, place), None
    [receipt] = _take(session, reading, queue).run()
    if reading.noack and receipt.rows:
        session.door.ack_receipt(receipt)
    return [row_entry(row) for row in receipt.rows], receipt


def _held(session: Session, reading: _Reading, queue: str, place: bytes) -> list[Entry]:
    """What the consumer has in flight, after an id, as much as a reply may have. It is delivered once more."""
    engine = session.door.engine
    check_group(session, queue, reading.group, "XREADGROUP")
    milliseconds, position = read_parts(place)
    after = after_bound(session, queue, Bound(milliseconds, position, is_open=True))
    leases = engine.leases(queue, reading.group, consumer=reading.consumer, after=after, limit=reading.count)
    now, size = engine.now() // 1000, 0
    found: list[Entry] = []
    for one in leases:
        message = engine.find(queue, one.id)
        size += len(message.payload)
        if found and size > MOST_BYTES:
            break
        session.door.claims.note_again(one, now)
        found.append(message_entry(message))
    return found
