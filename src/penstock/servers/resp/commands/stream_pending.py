"""XACK, XPENDING, XCLAIM and XAUTOCLAIM: what a group has in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from penstock.domain.observations import LeaseInfo
from penstock.domain.times import EPOCH
from penstock.servers.access import Right
from penstock.servers.resp.arguments import GroupName, QueueName, Words, read_count, read_name
from penstock.servers.resp.commands.bounds import after_bound, upto_bound
from penstock.servers.resp.commands.entries import (
    MICROSECOND,
    entry_id,
    is_whole_id,
    read_bound,
    read_parts,
)
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.commands.stream_reading import find_lease
from penstock.servers.resp.commands.streams import BEGINNING
from penstock.servers.resp.door import Door
from penstock.servers.resp.encoder import NO_ARRAY, Reply, integers
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command, several
from penstock.servers.resp.words import CommandError
from penstock.servers.resp.work import Work

if TYPE_CHECKING:
    from penstock.servers.resp.slot import Slot

FAMILY = "stream"
MOST = 1_000_000
MILLISECOND = timedelta(milliseconds=1)
# How many entries XAUTOCLAIM looks at for each that it may claim, as Redis does.
LOOKS_PER_CLAIM = 10
read_queue, read_group = read_name("queue"), read_name("group")


@command("XACK", Order.SEND, Right.RECEIVE, FAMILY, usage="XACK key group id [id ...]", least=1)
def acknowledge(session: Session, queue: QueueName, group: GroupName, words: Words) -> Begun:
    """Say that entries were processed; how many of them were in flight."""
    for word in words:
        read_parts(word)
    return session.door.ack(queue, group, words, partial(find_lease, session.door, queue, group), sum)


def _acknowledge_key(session: Session, words: list[bytes]) -> Hashable:
    if len(words) != 4 or not is_whole_id(words[3]):
        return None
    queue, group = read_queue(words[1]), read_group(words[2])
    session.check_one(Right.RECEIVE, queue)
    return queue, group


@several("XACK", _acknowledge_key)
def acknowledge_several(door: Door, slots: list[Slot]) -> Work:
    queue, group = read_queue(slots[0].calls[0][1]), read_group(slots[0].calls[0][2])
    names = [[one[3] for one in slot.calls] for slot in slots]
    return door.ack_each(queue, group, names, partial(find_lease, door, queue, group), integers)


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
    return [len(leases), lease_name(leases[0]), lease_name(leases[-1]), consumers]


def lease_name(lease: LeaseInfo) -> str:
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
        now = engine.now() // 1000
        found = []
        for lease in engine.leases(queue, group, consumer=consumer, after=after, limit=MOST if idle else count):
            told = session.door.claims.told(lease, now)
            if (upto is None or lease.position <= upto) and told.idle >= idle:
                found.append([lease_name(lease), lease.consumer, told.idle, told.deliveries])
        return found[:count]

    return session.door.look(operation, lambda reply: reply)
