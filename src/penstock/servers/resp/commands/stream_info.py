"""XINFO: what a stream, its groups and their consumers look like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.domain.observations import GroupStats, LeaseInfo
from penstock.domain.times import to_time
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Text, Words, read_name
from penstock.servers.resp.commands.entries import message_entry
from penstock.servers.resp.commands.stream_groups import check_group
from penstock.servers.resp.commands.stream_pending import MILLISECOND, MOST
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.words import CommandError, unknown_subcommand, wrong_arity

FAMILY = "stream"


@command("XINFO", Order.ALONE, Right.LOOK, FAMILY, usage="XINFO STREAM key | GROUPS key | CONSUMERS key group")
def info(session: Session, subcommand: Text, words: Words) -> Begun:
    """What a stream, its groups or a group's consumers look like."""
    look = LOOKS.get(subcommand.upper())
    if look is None:
        raise unknown_subcommand("XINFO", subcommand.encode())
    if not words:
        raise wrong_arity(f"xinfo|{subcommand.lower()}")
    queue = read_name("queue")(words[0])
    session.check(Right.LOOK, queue)

    def operation() -> Reply:
        if all(one.name != queue for one in session.door.engine.queues()):
            raise CommandError("ERR no such key")
        return look(session, queue, words[1:])

    return session.door.look(operation, lambda reply: reply)


def _stream(session: Session, queue: str, words: list[bytes]) -> Reply:
    engine = session.door.engine
    first = [message_entry(one) for one in engine.browse(queue, 0, None, 1)]
    last = [message_entry(one) for one in engine.browse(queue, 0, None, 1, backwards=True)]
    length = engine.unread(queue)
    return {
        "length": length,
        "radix-tree-keys": 1,
        "radix-tree-nodes": 2,
        "last-generated-id": last[0][0] if last else "0-0",
        "max-deleted-entry-id": "0-0",
        "entries-added": length,
        "recorded-first-entry-id": first[0][0] if first else "0-0",
        "groups": len(engine.groups(queue)),
        "first-entry": first[0] if first else None,
        "last-entry": last[0] if last else None,
    }


def _groups(session: Session, queue: str, words: list[bytes]) -> Reply:
    engine = session.door.engine
    found = []
    for name, stats in engine.stats(queue).items():
        leases = engine.leases(queue, name, limit=MOST)
        found.append(
            {
                "name": name,
                "consumers": len({lease.consumer for lease in leases}),
                "pending": stats.in_progress,
                "last-delivered-id": _last_delivered(session, queue, stats.lag),
                "entries-read": max(0, engine.unread(queue) - stats.lag) if _has_read(stats) else None,
                "lag": stats.lag,
            }
        )
    return found


def _has_read(stats: GroupStats) -> bool:
    return bool(stats.in_progress or stats.redo or sum(stats.outcomes.values()))


def _last_delivered(session: Session, queue: str, lag: int) -> object:
    """The entry before those that the group has not read."""
    behind = session.door.engine.browse(queue, 0, None, min(lag, MOST) + 1, backwards=True)
    return message_entry(behind[lag])[0] if len(behind) > lag else "0-0"


def _consumers(session: Session, queue: str, words: list[bytes]) -> Reply:
    if len(words) != 1:
        raise wrong_arity("xinfo|consumers")
    group = read_name("group")(words[0])
    check_group(session, queue, group, "XINFO")
    engine = session.door.engine
    now = to_time(engine.now())
    held: dict[str, list[LeaseInfo]] = {}
    for lease in engine.leases(queue, group, limit=MOST):
        held.setdefault(lease.consumer, []).append(lease)
    found = []
    for name, leases in sorted(held.items()):
        idle = max(0, (now - max(lease.leased_at for lease in leases)) // MILLISECOND)
        found.append({"name": name, "pending": len(leases), "idle": idle, "inactive": idle})
    return found


LOOKS: dict[str, Callable[[Session, str, list[bytes]], Any]] = {
    "STREAM": _stream,
    "GROUPS": _groups,
    "CONSUMERS": _consumers,
}
