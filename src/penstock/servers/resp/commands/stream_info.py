"""XINFO: describe a stream, its groups and their consumers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.domain.message import Message
from penstock.domain.results import GroupStats, LeaseInfo
from penstock.domain.timestamps import EPOCH
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Text, Words, read_count, read_name
from penstock.servers.resp.claim_options import MILLISECOND
from penstock.servers.resp.commands.entries import message_entry, message_entry_id
from penstock.servers.resp.commands.entries_read import entries_read
from penstock.servers.resp.commands.keyspace import exists
from penstock.servers.resp.commands.stream_chunks import browse, first_entries
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.commands.stream_pending import MOST, lease_name
from penstock.servers.resp.consumers import ConsumerActivity
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.errors import CommandError, quoted, unknown_subcommand
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
NO_ID = "0-0"
NEVER = -1
NEVER_SEEN = ConsumerActivity(0.0, None)
# The default of COUNT in XINFO STREAM FULL, for each list.
SHOWN = 10


@command(
    "XINFO",
    Order.ALONE,
    Right.LOOK,
    FAMILY,
    usage="XINFO STREAM key [FULL [COUNT count]] | GROUPS key | CONSUMERS key group",
    subcommands={"STREAM": (1, None), "GROUPS": (1, 1), "CONSUMERS": (2, 2), "HELP": (0, 0)},
    brings_messages=lambda values: values[0].upper() == "STREAM",
)
def info(session: ClientSession, subcommand: Text, words: Words) -> Begun:
    """Describe a stream, its groups or the consumers of a group."""
    if subcommand.upper() == "HELP":
        return ["XINFO <subcommand>. Subcommands are:", *sorted(SUBCOMMANDS), "HELP"]
    look = SUBCOMMANDS.get(subcommand.upper())
    if look is None:
        raise unknown_subcommand("XINFO", subcommand.encode())
    queue = read_name("queue")(words[0])
    session.check(Right.LOOK, queue)

    def operation() -> Reply:
        if not exists(session, queue):
            raise CommandError("ERR no such key")
        return look(session, queue, words[1:])

    return session.backend.read(operation)


def _stream(session: ClientSession, queue: str, words: list[bytes]) -> Reply:
    engine = session.backend.engine
    first = browse(session, queue, 0, None, 1)
    last = browse(session, queue, 0, None, 1, backwards=True)
    length = engine.unread(queue)
    reply: dict[str, Reply] = {
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
        reply["entries"] = [message_entry(one) for one in first_entries(session, queue, 0, count)]
        reply["groups"] = [_group_in_full(session, queue, name, count) for name in engine.stats(queue)]
        return reply
    reply["groups"] = len(engine.groups(queue))
    reply["first-entry"] = message_entry(first[0]) if first else None
    reply["last-entry"] = message_entry(last[0]) if last else None
    return reply


def _first_id(found: list[Message]) -> str:
    return message_entry_id(found[0]) if found else NO_ID


def _full(words: list[bytes]) -> int:
    """Parse `FULL COUNT 5`; 0 means all."""
    if words[0].upper() != b"FULL" or len(words) not in (1, 3) or (len(words) == 3 and words[1].upper() != b"COUNT"):
        raise CommandError(f"ERR syntax error: {quoted(words[0])} where FULL [COUNT count] may stand")
    return (read_count(words[2]) or MOST) if len(words) == 3 else SHOWN


def _groups(session: ClientSession, queue: str, words: list[bytes]) -> Reply:
    return [_group(session, queue, name, stats) for name, stats in session.backend.engine.stats(queue).items()]


def _group(session: ClientSession, queue: str, name: str, stats: GroupStats) -> dict[str, Reply]:
    return {
        "name": name,
        "consumers": len(_held(session, queue, name)),
        "pending": stats.in_progress,
        "last-delivered-id": _last_delivered(session, queue, name),
        "entries-read": entries_read(session, queue, name, stats),
        "lag": stats.lag,
    }


def _last_delivered(session: ClientSession, queue: str, group: str) -> str:
    """The id of the last entry that the group has read."""
    engine = session.backend.engine
    return _first_id(engine.browse(queue, 0, engine.reached(queue, group), 1, backwards=True))


def _held(session: ClientSession, queue: str, group: str) -> dict[str, list[LeaseInfo]]:
    """Pending entries by consumer; consumers without any are known only to the server they used."""
    held: dict[str, list[LeaseInfo]] = {name: [] for name in session.backend.consumers.of(queue, group)}
    for lease in session.backend.engine.leases(queue, group, limit=MOST):
        held.setdefault(lease.consumer, []).append(lease)
    return dict(sorted(held.items()))


def _times(session: ClientSession, queue: str, group: str, name: str, leases: list[LeaseInfo]) -> tuple[int, int]:
    """When the consumer was last seen and when it last got an entry, in milliseconds."""
    met = session.backend.consumers.of(queue, group).get(name, NEVER_SEEN)
    leased_at = [_milliseconds(lease) for lease in leases]
    active_at = max([NEVER if met.active_at is None else int(met.active_at * 1000), *leased_at])
    return max([int(met.seen_at * 1000), *leased_at]), active_at


def _milliseconds(lease: LeaseInfo) -> int:
    return (lease.leased_at - EPOCH) // MILLISECOND


def _consumers(session: ClientSession, queue: str, words: list[bytes]) -> Reply:
    group = read_name("group")(words[0])
    check_group(session, queue, group, "XINFO")
    now = session.backend.engine.now() // 1000
    reply = []
    for name, leases in _held(session, queue, group).items():
        seen_at, active_at = _times(session, queue, group, name, leases)
        inactive = NEVER if active_at == NEVER else max(0, now - active_at)
        reply.append({"name": name, "pending": len(leases), "idle": max(0, now - seen_at), "inactive": inactive})
    return reply


# -- in full -----------------------------------------------------------------------------------------------------------


def _group_in_full(session: ClientSession, queue: str, name: str, count: int) -> dict[str, Reply]:
    stats = session.backend.engine.stats(queue)[name]
    held = _held(session, queue, name)
    leases = sorted((lease for several in held.values() for lease in several), key=lambda lease: lease.position)
    return {
        "name": name,
        "last-delivered-id": _last_delivered(session, queue, name),
        "entries-read": entries_read(session, queue, name, stats),
        "lag": stats.lag,
        "pel-count": len(leases),
        "pending": [[lease_name(one), one.consumer, *_delivery_stats(session, one)] for one in leases[:count]],
        "consumers": [_consumer_in_full(session, queue, name, *one, count) for one in held.items()],
    }


def _consumer_in_full(
    session: ClientSession, queue: str, group: str, name: str, leases: list[LeaseInfo], count: int
) -> dict[str, Reply]:
    seen_at, active_at = _times(session, queue, group, name, leases)
    return {
        "name": name,
        "seen-time": seen_at,
        "active-time": active_at,
        "pel-count": len(leases),
        "pending": [[lease_name(one), *_delivery_stats(session, one)] for one in leases[:count]],
    }


def _delivery_stats(session: ClientSession, lease: LeaseInfo) -> list[int]:
    """Time of the last delivery, and number of deliveries."""
    now = session.backend.engine.now() // 1000
    idle, deliveries = session.backend.claims.stats(lease, now)
    return [now - idle, deliveries]


SUBCOMMANDS: dict[str, Callable[[ClientSession, str, list[bytes]], Any]] = {
    "STREAM": _stream,
    "GROUPS": _groups,
    "CONSUMERS": _consumers,
}
