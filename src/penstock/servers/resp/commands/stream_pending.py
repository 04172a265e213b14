"""XACK and XPENDING: the pending entries of a group."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from functools import partial

from penstock.domain.results import LeaseInfo
from penstock.domain.timestamps import EPOCH
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
from penstock.servers.resp.commands.stream_group_read import find_lease
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.commands.streams import BEGINNING
from penstock.servers.resp.encoder import NO_ARRAY, Replies, Reply
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
MOST = 1_000_000
MILLISECOND = timedelta(milliseconds=1)
# How many entries XAUTOCLAIM looks at for each that it may claim, as Redis does.
EXAMINED_PER_CLAIM = 10


def _common(words: list[bytes]) -> list[bytes] | None:
    """One entry per command, of one group."""
    return words[:3] if len(words) == 4 and is_whole_id(words[3]) else None


@command("XACK", Order.SEND, Right.RECEIVE, FAMILY, usage="XACK key group id [id ...]", least=1, common=_common)
def acknowledge(
    session: ClientSession, queue: QueueName, group: GroupName, words: Words, *, calls: list[list[bytes]]
) -> Begun:
    """Acknowledge entries. Returns how many of them were pending."""
    for word in words:
        read_parts(word)
    find = partial(find_lease, session.backend, queue, group)
    names = words if len(calls) == 1 else [one[3] for one in calls]
    finish = sum if len(calls) == 1 else _each
    return session.backend.entry_leases.ack(session, queue, group, names, find, finish)


def _each(outcomes: list[bool]) -> Reply:
    return Replies([int(one) for one in outcomes])


@command(
    "XPENDING", Order.ALONE, Right.LOOK, FAMILY, usage="XPENDING key group [[IDLE min-idle] start end count [consumer]]"
)
def pending(session: ClientSession, queue: QueueName, group: GroupName, words: Words) -> Begun:
    """Return the pending entries of a group: a summary, or a list."""
    if words:
        return _pending_entries(session, queue, group, words)

    def operation() -> list[LeaseInfo]:
        check_group(session, queue, group, "XPENDING")
        return session.backend.engine.leases(queue, group, limit=MOST)

    return session.backend.read(operation, _summary)


def _summary(leases: list[LeaseInfo]) -> Reply:
    if not leases:
        return [0, None, None, NO_ARRAY]
    held = Counter(lease.consumer for lease in leases)
    consumers = [[name, str(count)] for name, count in sorted(held.items())]
    return [len(leases), lease_name(leases[0]), lease_name(leases[-1]), consumers]


def lease_name(lease: LeaseInfo) -> str:
    return entry_id((lease.created_at - EPOCH) // MICROSECOND, lease.position)


def _pending_entries(session: ClientSession, queue: str, group: str, words: list[bytes]) -> Begun:
    idle = 0
    if words[0].upper() == b"IDLE":
        idle = read_count(words[1]) if len(words) > 1 else 0
        words = words[2:]
    if len(words) not in (3, 4):
        raise CommandError("ERR syntax error: XPENDING takes start end count [consumer]")
    count = read_count(words[2])
    consumer = read_name("consumer")(words[3]) if len(words) == 4 else None
    first, last = None if words[0] == b"-" else read_bound(words[0]), None if words[1] == b"+" else read_bound(words[1])
    engine = session.backend.engine

    def operation() -> Reply:
        check_group(session, queue, group, "XPENDING")
        after = BEGINNING if first is None else after_bound(session, queue, first)
        upto = None if last is None else upto_bound(session, queue, last)
        now = engine.now() // 1000
        found = []
        for lease in engine.leases(queue, group, consumer=consumer, after=after, limit=MOST if idle else count):
            stats = session.backend.claims.stats(lease, now)
            if (upto is None or lease.position <= upto) and stats.idle >= idle:
                found.append([lease_name(lease), lease.consumer, stats.idle, stats.deliveries])
        return found[:count]

    return session.backend.read(operation)
