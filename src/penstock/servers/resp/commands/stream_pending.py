"""XACK, XPENDING, XCLAIM and XAUTOCLAIM: what a group has in flight."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from penstock.domain.observations import LeaseInfo
from penstock.domain.times import EPOCH, to_time
from penstock.engines.contract import Receipt
from penstock.servers.access import Right
from penstock.servers.resp.arguments import GroupName, Name, QueueName, Words, read_count, read_name
from penstock.servers.resp.commands.entries import MICROSECOND, entry_id, read_bound, read_position, row_entry
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.commands.streams import BEGINNING, after_bound, upto_bound
from penstock.servers.resp.encoder import NO_ARRAY, Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.words import CommandError, quoted, wrong_arity

FAMILY = "stream"
MOST = 1_000_000
MILLISECOND = timedelta(milliseconds=1)
# How many entries XAUTOCLAIM looks at for each that it may claim, as Redis does.
LOOKS_PER_CLAIM = 10


@command("XACK", Order.SEND, Right.RECEIVE, FAMILY, usage="XACK key group id [id ...]")
def acknowledge(session: Session, queue: QueueName, group: GroupName, words: Words) -> Begun:
    """Say that entries were processed; how many of them were in flight."""
    if not words:
        raise wrong_arity("xack")
    return session.door.ack_entries(queue, group, [read_position(word) for word in words])


@command(
    "XPENDING", Order.ALONE, Right.LOOK, FAMILY, usage="XPENDING key group [[IDLE min-idle] start end count [consumer]]"
)
def pending(session: Session, queue: QueueName, group: GroupName, words: Words) -> Begun:
    """What the group has in flight: in short, or entry by entry."""
    if words:
        return _pending_entries(session, queue, group, words)

    def operation() -> list[LeaseInfo]:
        check_group(session, queue, group, "XPENDING")
        return session.door.engine.leases(queue, group, limit=MOST)

    return session.door.look(operation, _summary)


def _summary(leases: list[LeaseInfo]) -> Reply:
    if not leases:
        return [0, None, None, NO_ARRAY]
    held = Counter(lease.consumer for lease in leases)
    consumers = [[name, str(count)] for name, count in sorted(held.items())]
    return [len(leases), _id(leases[0]), _id(leases[-1]), consumers]


def _id(lease: LeaseInfo) -> str:
    return entry_id((lease.created_at - EPOCH) // MICROSECOND, lease.position)


def _pending_entries(session: Session, queue: str, group: str, words: list[bytes]) -> Begun:
    idle = 0
    if words[0].upper() == b"IDLE":
        idle = read_count(words[1]) if len(words) > 1 else 0
        words = words[2:]
    if len(words) not in (3, 4):
        raise CommandError("ERR syntax error: XPENDING takes start end count [consumer]")
    count = read_count(words[2])
    consumer = read_name("consumer")(words[3]) if len(words) == 4 else None
    first, last = None if words[0] == b"-" else read_bound(words[0]), None if words[1] == b"+" else read_bound(words[1])
    engine = session.door.engine

    def operation() -> Reply:
        check_group(session, queue, group, "XPENDING")
        after = BEGINNING if first is None else after_bound(session, queue, first)
        upto = None if last is None else upto_bound(session, queue, last)
        now = to_time(engine.now())
        found = []
        for lease in engine.leases(queue, group, consumer=consumer, after=after, limit=MOST if idle else count):
            waited = max(0, (now - lease.leased_at) // MILLISECOND)
            if (upto is None or lease.position <= upto) and waited >= idle:
                found.append([_id(lease), lease.consumer, waited, lease.attempt])
        return found[:count]

    return session.door.look(operation, lambda reply: reply)


@command(
    "XCLAIM",
    Order.TURN,
    Right.RECEIVE,
    FAMILY,
    usage="XCLAIM key group consumer min-idle-time id [id ...] [JUSTID]",
)
def claim(session: Session, queue: QueueName, group: GroupName, consumer: Name, words: Words) -> Begun:
    """Take over entries that another consumer holds for too long."""
    if len(words) < 2:
        raise wrong_arity("xclaim")
    idle = _idle(words[0])
    at = 1
    positions: list[int] = []
    while at < len(words) and words[at][:1].isdigit():
        positions.append(read_position(words[at]))
        at += 1
    just_ids = _claim_options(words[at:])
    engine = session.door.engine

    def operation() -> Receipt:
        check_group(session, queue, group, "XCLAIM")
        now = to_time(engine.now())
        ids = []
        for position in positions:
            found = engine.browse(queue, position - 1, position, 1)
            ids += [
                lease.id
                for lease in engine.leases(queue, group, ids=[one.id for one in found])
                if (now - lease.leased_at) // MILLISECOND >= idle
            ]
        return _take_over(session, queue, group, consumer, ids, just_ids)

    return session.door.change(operation, lambda receipt: _claimed(session, receipt, just_ids))


def _take_over(session: Session, queue: str, group: str, consumer: str, ids: list[str], just_ids: bool) -> Receipt:
    lease_seconds = session.server.stream_lease_seconds
    return session.door.engine.take_over(queue, group, consumer, ids, lease_seconds, counts=not just_ids)


def _claimed(session: Session, receipt: Receipt, just_ids: bool) -> Reply:
    session.door.remember_entries(receipt)
    entries = [row_entry(row) for row in receipt.rows]
    return [entry[0] for entry in entries] if just_ids else entries


def _idle(word: bytes) -> int:
    if not word.isdigit():
        raise CommandError("ERR Invalid min-idle-time argument for XCLAIM")
    return int(word)


def _claim_options(words: list[bytes]) -> bool:
    just_ids, at = False, 0
    while at < len(words):
        match words[at].upper():
            case b"JUSTID":
                just_ids = True
                at += 1
            case b"FORCE" | b"IDLE" | b"TIME" | b"RETRYCOUNT" | b"LASTID":
                raise CommandError(f"ERR XCLAIM option {quoted(words[at])} is not known here: only JUSTID is")
            case _:
                raise CommandError(f"ERR Unrecognized XCLAIM option {quoted(words[at])}")
    return just_ids


@command(
    "XAUTOCLAIM",
    Order.TURN,
    Right.RECEIVE,
    FAMILY,
    usage="XAUTOCLAIM key group consumer min-idle-time start [COUNT count] [JUSTID]",
)
def claim_any(session: Session, queue: QueueName, group: GroupName, consumer: Name, words: Words) -> Begun:
    """Take over any entries that other consumers hold for too long."""
    if len(words) < 2:
        raise wrong_arity("xautoclaim")
    idle, start = _idle(words[0]), read_bound(b"0-0" if words[1] == b"-" else words[1])
    count, just_ids = _claim_any_options(words[2:])
    engine = session.door.engine

    def operation() -> tuple[str, Receipt]:
        check_group(session, queue, group, "XAUTOCLAIM")
        now = to_time(engine.now())
        looks = count * LOOKS_PER_CLAIM
        leases = engine.leases(queue, group, after=after_bound(session, queue, start), limit=looks + 1)
        ids: list[str] = []
        following: LeaseInfo | None = leases[looks] if len(leases) > looks else None
        for place, lease in enumerate(leases[:looks]):
            if (now - lease.leased_at) // MILLISECOND >= idle:
                ids.append(lease.id)
            if len(ids) == count:
                following = leases[place + 1] if place + 1 < len(leases) else None
                break
        cursor = "0-0" if following is None else _id(following)
        return cursor, _take_over(session, queue, group, consumer, ids, just_ids)

    def finish(found: tuple[str, Receipt]) -> Reply:
        return [found[0], _claimed(session, found[1], just_ids), []]

    return session.door.change(operation, finish)


def _claim_any_options(words: list[bytes]) -> tuple[int, bool]:
    count, just_ids, at = 100, False, 0
    while at < len(words):
        word = words[at].upper()
        if word == b"JUSTID":
            just_ids = True
            at += 1
        elif word == b"COUNT" and at + 1 < len(words):
            count = read_count(words[at + 1])
            if not count:
                raise CommandError("ERR COUNT must be > 0")
            at += 2
        else:
            raise CommandError(f"ERR syntax error: unknown option {quoted(words[at])} for 'xautoclaim'")
    return min(count, MOST), just_ids
