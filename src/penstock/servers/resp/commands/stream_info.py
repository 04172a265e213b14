"""XINFO: what a stream, its groups and their consumers look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.domain.message import Message
from penstock.domain.observations import GroupStats, LeaseInfo
from penstock.domain.times import EPOCH
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Text, Words, read_count, read_name
from penstock.servers.resp.claims import MILLISECOND
from penstock.servers.resp.commands.entries import message_entry, message_entry_id
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.commands.stream_pending import MOST, lease_name
from penstock.servers.resp.commands.stream_pieces import browse
from penstock.servers.resp.commands.streams import exists
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.words import CommandError, quoted, unknown_subcommand

FAMILY = "stream"
NO_ID = "0-0"
# How many entries XINFO STREAM FULL shows of each list, unless COUNT says otherwise.
SHOWN = 10


@command(
    "XINFO",
    Order.ALONE,
    Right.LOOK,
    FAMILY,
    usage="XINFO STREAM key [FULL [COUNT count]] | GROUPS key | CONSUMERS key group",
    subcommands={"STREAM": (1, None), "GROUPS": (1, 1), "CONSUMERS": (2, 2)},
)
def info(session: Session, subcommand: Text, words: Words) -> Begun:
    """What a stream, its groups or a group's consumers look like."""
    look = LOOKS.get(subcommand.upper())
    if look is None:
        raise unknown_subcommand("XINFO", subcommand.encode())
    queue = read_name("queue")(words[0])
    session.check(Right.LOOK, queue)

    def operation() -> Reply:
        if not exists(session, queue):
            raise CommandError("ERR no such key")
        return look(session, queue, words[1:])

    return session.door.look(operation, lambda reply: reply)


def _stream(session: Session, queue: str, words: list[bytes]) -> Reply:
    engine = session.door.engine
    first = browse(session, queue, 0, None, 1)
    last = browse(session, queue, 0, None, 1, backwards=True)
    length = engine.unread(queue)
    told: dict[str, Reply] = {
        "length": length,
        "radix-tree-keys": 1,
        "radix-tree-nodes": 2,
        "last-generated-id": _first_id(last),
        "max-deleted-entry-id": NO_ID,
        "entries-added": length,
        "recorded-first-entry-id": _first_id(first),
    }
    if words:
        count = _full(words)
        told["entries"] = [message_entry(one) for one in browse(session, queue, 0, None, count)]
        told["groups"] = [_group_in_full(session, queue, name, count) for name in engine.stats(queue)]
        return told
    told["groups"] = len(engine.groups(queue))
    told["first-entry"] = message_entry(first[0]) if first else None
    told["last-entry"] = message_entry(last[0]) if last else None
    return told


def _first_id(found: list[Message]) -> str:
    return message_entry_id(found[0]) if found else NO_ID


def _full(words: list[bytes]) -> int:
    """`FULL COUNT 5`; 0 is for all."""
    if words[0].upper() != b"FULL" or len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != b"COUNT"):
        raise CommandError(f"ERR syntax error: {quoted(words[0])} where FULL [COUNT count] may stand")
    return (read_count(words[2]) or MOST) if len(words) == 3 else SHOWN


def _groups(session: Session, queue: str, words: list[bytes]) -> Reply:
    return [_group(session, queue, name, stats) for name, stats in session.door.engine.stats(queue).items()]


def _group(session: Session, queue: str, name: str, stats: GroupStats) -> dict[str, Reply]:
    return {
        "name": name,
        "consumers": len(_held(session, queue, name)),
        "pending": stats.in_progress,
        "last-delivered-id": _last_delivered(session, queue, name),
        "entries-read": _entries_read(session, queue, stats),
        "lag": stats.lag,
    }


def _entries_read(session: Session, queue: str, stats: GroupStats) -> int | None:
    has_read = bool(stats.in_progress or stats.redo or sum(stats.outcomes.values()))
    return max(0, session.door.engine.unread(queue) - stats.lag) if has_read else None


def _last_delivered(session: Session, queue: str, group: str) -> str:
    """The last entry up to where the group has come."""
    engine = session.door.engine
    return _first_id(engine.browse(queue, 0, engine.reached(queue, group), 1, backwards=True))


def _held(session: Session, queue: str, group: str) -> dict[str, list[LeaseInfo]]:
    """What each consumer holds; those who hold nothing are known to the server they came to."""
    held: dict[str, list[LeaseInfo]] = {name: [] for name in session.door.consumers.of(queue, group)}
    for lease in session.door.engine.leases(queue, group, limit=MOST):
        held.setdefault(lease.consumer, []).append(lease)
    return dict(sorted(held.items()))


def _seen_at(session: Session, queue: str, group: str, name: str, leases: list[LeaseInfo]) -> int:
    """When a consumer was last here, in milliseconds: what the server has seen, or what the store knows."""
    met = session.door.consumers.of(queue, group).get(name, 0.0)
    return max([int(met * 1000), *(_milliseconds(lease) for lease in leases)])


def _milliseconds(lease: LeaseInfo) -> int:
    return (lease.leased_at - EPOCH) // MILLISECOND


def _consumers(session: Session, queue: str, words: list[bytes]) -> Reply:
    group = read_name("group")(words[0])
    check_group(session, queue, group, "XINFO")
    now = session.door.engine.now() // 1000
    return [
        {"name": name, "pending": len(leases), "idle": max(0, now - _seen_at(session, queue, group, name, leases))}
        for name, leases in _held(session, queue, group).items()
    ]


# -- in full -----------------------------------------------------------------------------------------------------------


def _group_in_full(session: Session, queue: str, name: str, count: int) -> dict[str, Reply]:
    stats = session.door.engine.stats(queue)[name]
    held = _held(session, queue, name)
    leases = sorted((lease for several in held.values() for lease in several), key=lambda lease: lease.position)
    return {
        "name": name,
        "last-delivered-id": _last_delivered(session, queue, name),
        "entries-read": _entries_read(session, queue, stats),
        "lag": stats.lag,
        "pel-count": len(leases),
        "pending": [[lease_name(one), one.consumer, *_told(session, one)] for one in leases[:count]],
        "consumers": [
            {
                "name": consumer,
                "seen-time": _seen_at(session, queue, name, consumer, several),
                "pel-count": len(several),
                "pending": [[lease_name(one), *_told(session, one)] for one in several[:count]],
            }
            for consumer, several in held.items()
        ],
    }


def _told(session: Session, lease: LeaseInfo) -> list[int]:
    """When it was delivered, and how often."""
    now = session.door.engine.now() // 1000
    idle, deliveries = session.door.claims.told(lease, now)
    return [now - idle, deliveries]


LOOKS: dict[str, Callable[[Session, str, list[bytes]], Any]] = {
    "STREAM": _stream,
    "GROUPS": _groups,
    "CONSUMERS": _consumers,
}
