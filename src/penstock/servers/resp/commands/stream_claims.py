"""XCLAIM and XAUTOCLAIM: take over entries that other consumers have held for too long."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from penstock.domain.results import LeaseInfo
from penstock.engines.contract import PAYLOAD, POSITION, Receipt
from penstock.servers.access import Right
from penstock.servers.reply_size import first_piece, pieces
from penstock.servers.resp.arguments import GroupName, Name, QueueName, Words
from penstock.servers.resp.commands.bounds import after_bound, upto_bound
from penstock.servers.resp.commands.entries import (
    BEYOND,
    Bound,
    is_whole_id,
    message_entry_id,
    read_bound,
    read_parts,
    row_entries,
    row_names,
)
from penstock.servers.resp.commands.stream_group_read import find_lease
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.commands.stream_pending import MOST, lease_name
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.errors import CommandError, quoted
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
# Entries that XAUTOCLAIM examines for each that it may claim, as in Redis.
EXAMINED_PER_CLAIM = 10
# The limit of Redis, which leaves room for the examined entries.
MAX_COUNT = (2**63 - 1) // 16 // EXAMINED_PER_CLAIM
CLAIM_USAGE = (
    "XCLAIM key group consumer min-idle-time id [id ...] [IDLE ms] [TIME unix-time-milliseconds] [RETRYCOUNT count] "
    "[FORCE] [JUSTID] [LASTID id]"
)


class _Claim(msgspec.Struct):
    """The options of XCLAIM."""

    just_ids: bool = False
    force: bool = False
    idle: int | None = None
    delivered_at: int | None = None
    deliveries: int | None = None
    last: Bound | None = None

    def delivery_time(self, now: int) -> int | None:
        """The time of delivery to record, if it was given."""
        at = self.delivered_at if self.idle is None else now - self.idle
        return None if at is None else min(at, now)


class _Wanted(NamedTuple):
    """An entry to take over, with its lease if it is in flight."""

    id: str
    position: int
    lease: LeaseInfo | None


def _brings_entries(values: list[Any]) -> bool:
    """True without JUSTID. The word is valid only as that option: elsewhere the call is an error."""
    words: list[bytes] = values[-1]
    return all(word.upper() != b"JUSTID" for word in words)


@command("XCLAIM", Order.TURN, Right.RECEIVE, FAMILY, usage=CLAIM_USAGE, least=2, brings_messages=_brings_entries)
def claim(session: ClientSession, queue: QueueName, group: GroupName, consumer: Name, words: Words) -> Begun:
    """Take over entries that another consumer has held for too long, as many as fit into a reply."""
    idle = _idle(words[0])
    at = 1
    while at < len(words) and words[at][:1].isdigit():
        read_parts(words[at])
        at += 1
    names, asked = [word for word in words[1:at] if is_whole_id(word)], _claim_options(words[at:])

    def operation() -> list[Receipt]:
        check_group(session, queue, group, "XCLAIM")
        if asked.last is not None:
            _advance_cursor(session, queue, group, asked.last)
        now = session.backend.engine.now() // 1000
        wanted = [
            one
            for one in _wanted(session, queue, group, names, asked.force)
            if one.lease is None or session.backend.claims.stats(one.lease, now).idle >= idle
        ]
        return _take_over(session, queue, group, consumer, wanted, asked)[0]

    return session.backend.write(operation, lambda receipts: _claimed(session, consumer, receipts, asked.just_ids))


def _wanted(session: ClientSession, queue: str, group: str, names: list[bytes], force: bool) -> Iterator[_Wanted]:
    """Yield the entries with exactly these ids that are in flight, and with `force` the others too."""
    engine = session.backend.engine
    for name in names:
        lease = find_lease(session.backend, queue, group, name)
        position = read_parts(name)[1] or 0
        if lease is not None:
            yield _Wanted(lease.id, position, lease)
        elif force and 0 < position < BEYOND:
            for one in engine.browse(queue, position - 1, position, 1):
                if message_entry_id(one).encode() == name:
                    yield _Wanted(one.id, position, None)


def _advance_cursor(session: ClientSession, queue: str, group: str, last: Bound) -> None:
    """LASTID: move the cursor of the group to this id, but never back."""
    engine = session.backend.engine
    place = upto_bound(session, queue, last)
    if place > engine.reached(queue, group):
        engine.seek(queue, group, place)


def _take_over(
    session: ClientSession, queue: str, group: str, consumer: str, wanted: list[_Wanted], asked: _Claim
) -> tuple[list[Receipt], int]:
    """Inside an operation: take over as many entries as fit into a reply, and return how many were tried. Ids alone
    always fit: the entries are taken over in pieces, and their payloads dropped."""

    def size_of(one: _Wanted) -> int:
        places = session.backend.engine.places(queue, one.position - 1, one.position, 1)
        return places[0][2] if places else 0

    if not asked.just_ids:
        piece = first_piece(wanted, size_of)
        return [_take_over_piece(session, queue, group, consumer, piece, asked)], len(piece)
    receipts = [
        _without_payloads(_take_over_piece(session, queue, group, consumer, piece, asked))
        for piece in pieces(wanted, size_of)
    ]
    return receipts, len(wanted)


def _take_over_piece(
    session: ClientSession, queue: str, group: str, consumer: str, wanted: list[_Wanted], asked: _Claim
) -> Receipt:
    """Idle times and delivery counts differ from the store's only where the client set them."""
    engine, claims = session.backend.engine, session.backend.claims
    now = engine.now() // 1000
    before = {one.position: claims.deliveries_of(one.lease) for one in wanted if one.lease is not None}
    seconds, ids = session.server.stream_lease_seconds, list(dict.fromkeys([one.id for one in wanted]))
    receipt = engine.take_over(queue, group, consumer, ids, seconds, counts=not asked.just_ids, force=asked.force)
    for row in receipt.rows:
        deliveries = asked.deliveries
        if deliveries is None and (known := before.get(row[POSITION])) is not None:
            deliveries = known if asked.just_ids else known + 1
        claims.note(receipt.token, row[POSITION], asked.delivery_time(now), deliveries)
    return receipt


def _without_payloads(receipt: Receipt) -> Receipt:
    rows = [(*row[:PAYLOAD], b"", *row[PAYLOAD + 1 :]) for row in receipt.rows]
    return msgspec.structs.replace(receipt, rows=rows)


def _claimed(session: ClientSession, consumer: str, receipts: list[Receipt], just_ids: bool) -> Reply:
    for receipt in receipts:
        session.backend.consumers.note_seen(receipt.queue, receipt.group, consumer)
        if receipt.rows:
            session.backend.consumers.note_active(receipt.queue, receipt.group, [consumer])
        session.backend.entry_leases.note(session.holder, receipt, row_names(receipt.rows))
    rows = [row for one in receipts for row in one.rows]
    names = row_names(rows)
    return names if just_ids else row_entries(rows, names)


def _idle(word: bytes) -> int:
    if not word.isdigit() or len(word) > 18:
        raise CommandError("ERR Invalid min-idle-time argument for XCLAIM")
    return int(word)


def _claim_options(words: list[bytes]) -> _Claim:
    asked, at = _Claim(), 0
    while at < len(words):
        word, value = words[at].upper(), words[at + 1] if at + 1 < len(words) else None
        at += 1 if word in (b"JUSTID", b"FORCE") else 2
        match word:
            case b"JUSTID":
                asked.just_ids = True
            case b"FORCE":
                asked.force = True
            case b"IDLE" if value is not None:
                asked.idle = _number(value, "IDLE")
            case b"TIME" if value is not None:
                asked.delivered_at = _number(value, "TIME")
            case b"RETRYCOUNT" if value is not None:
                asked.deliveries = _number(value, "RETRYCOUNT")
            case b"LASTID" if value is not None:
                asked.last = Bound(*read_parts(value))
            case _:
                raise CommandError(f"ERR Unrecognized XCLAIM option {quoted(word)}")
    return asked


def _number(value: bytes, name: str) -> int:
    if not value.isdigit() or len(value) > 18:
        raise CommandError(f"ERR Invalid {name} option argument for XCLAIM")
    return int(value)


@command(
    "XAUTOCLAIM",
    Order.TURN,
    Right.RECEIVE,
    FAMILY,
    usage="XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]",
    least=2,
    brings_messages=_brings_entries,
)
def claim_any(session: ClientSession, queue: QueueName, group: GroupName, consumer: Name, words: Words) -> Begun:
    """Take over any entries that other consumers have held for too long."""
    idle, start = _idle(words[0]), read_bound(b"0-0" if words[1] == b"-" else words[1])
    count, just_ids = _claim_any_options(words[2:])
    engine, claims = session.backend.engine, session.backend.claims

    def operation() -> tuple[str, list[Receipt]]:
        check_group(session, queue, group, "XAUTOCLAIM")
        now = engine.now() // 1000
        looks = count * EXAMINED_PER_CLAIM
        leases = engine.leases(queue, group, after=after_bound(session, queue, start), limit=looks + 1)
        due = [place for place, one in enumerate(leases[:looks]) if claims.stats(one, now).idle >= idle]
        wanted = [_Wanted(leases[place].id, leases[place].position, leases[place]) for place in due[:count]]
        receipts, taken = _take_over(session, queue, group, consumer, wanted, _Claim(just_ids=just_ids))
        examined = due[taken - 1] + 1 if taken == count or taken < len(due) else looks
        return lease_name(leases[examined]) if examined < len(leases) else "0-0", receipts

    def finish(found: tuple[str, list[Receipt]]) -> Reply:
        return [found[0], _claimed(session, consumer, found[1], just_ids), []]

    return session.backend.write(operation, finish)


def _claim_any_options(words: list[bytes]) -> tuple[int, bool]:
    count, just_ids, at = 100, False, 0
    while at < len(words):
        word = words[at].upper()
        if word == b"JUSTID":
            just_ids = True
            at += 1
        elif word == b"COUNT" and at + 1 < len(words):
            if not words[at + 1].isdigit() or not 0 < int(words[at + 1][:19]) <= MAX_COUNT:
                raise CommandError("ERR COUNT must be > 0")
            count = int(words[at + 1])
            at += 2
        else:
            raise CommandError(f"ERR syntax error: unknown option {quoted(words[at])} for 'xautoclaim'")
    return min(count, MOST), just_ids
