"""QSTATUS and QINFO: counters of queues and their groups."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import msgspec

from penstock.domain.results import GroupStats
from penstock.engines.contract import Engine
from penstock.servers.permissions import Needs
from penstock.servers.resp.arguments import Words, read_name
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.pending import Pending
from penstock.servers.resp.presence import Place
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "queue"
USAGE = "[queue ...] [GROUPS group ...]"
Numbers = dict[str, int]
Status = dict[str, dict[str, Numbers]]


@command("QSTATUS", Order.ALONE, Needs.READ_QUEUES, FAMILY, usage=f"QSTATUS {USAGE}")
def status(session: ClientSession, words: Words) -> Begun:
    """Counters of queues and their groups, for programs."""
    return _status(session, words, _status_reply)


@command("QINFO", Order.ALONE, Needs.READ_QUEUES, FAMILY, usage=f"QINFO {USAGE}")
def info(session: ClientSession, words: Words) -> Begun:
    """Counters of queues and their groups, for people."""
    return _status(session, words, _lines)


def _status_reply(found: Status) -> Reply:
    return [[queue, groups] for queue, groups in found.items()]


def _lines(found: Status) -> Reply:
    rows = [(queue, group, numbers) for queue, groups in found.items() for group, numbers in groups.items()]
    wide = max((len(group) for _, group, _ in rows), default=0)
    return [
        f"{queue} {group:<{wide}} " + " ".join(f"{name}:{number}" for name, number in numbers.items())
        for queue, group, numbers in rows
    ]


def _status(session: ClientSession, words: list[bytes], tell: Callable[[Status], Reply]) -> Pending:
    queues, groups = _names(words)
    session.check(Needs.READ_QUEUES, *queues)
    server, engine = session.server, session.backend.engine

    def operation() -> Status:
        waiting = server.presence.elsewhere(engine) + Counter(server.blocked.listeners())
        known = queues or sorted({info.name for info in engine.queues()} | {queue for queue, _ in waiting})
        seen = [queue for queue in known if queues or session.may(Needs.READ_QUEUES, queue)]
        found: Status = {}
        for queue in seen:
            total = engine.unread(queue)
            numbers = _queue_status(engine, queue, total, groups, waiting)
            # A list of all queues leaves out those without events and consumers.
            if queues or total or any(one["inprogress"] or one["consumers"] for one in numbers.values()):
                found[queue] = numbers
        return found

    return session.backend.read(operation, tell)


def _queue_status(
    engine: Engine, queue: str, total: int, groups: list[str], waiting: Counter[Place]
) -> dict[str, Numbers]:
    stats = _exact_stats(engine, queue)
    names = groups or sorted({*stats, *(group for name, group in waiting if name == queue)})
    return {name: _numbers(total, stats.get(name), waiting[queue, name]) for name in names}


def _exact_stats(engine: Engine, queue: str) -> dict[str, GroupStats]:
    """Count messages of expired leases as available, also before the sweep."""
    stats = engine.stats(queue)
    for group, one in stats.items():
        if one.in_progress:
            live = len(engine.leases(queue, group, limit=one.in_progress))
            stats[group] = msgspec.structs.replace(one, in_progress=live, redo=one.redo + one.in_progress - live)
    return stats


def _names(words: list[bytes]) -> tuple[list[str], list[str]]:
    upper = [word.upper() for word in words]
    split = upper.index(b"GROUPS") if b"GROUPS" in upper else len(words)
    if split == len(words) - 1:
        raise CommandError(f"ERR syntax error: GROUPS needs at least one group (usage: {USAGE})")
    read_queue, read_group = read_name("queue"), read_name("group")
    return [read_queue(word) for word in words[:split]], [read_group(word) for word in words[split + 1 :]]


def _numbers(total: int, found: GroupStats | None, waiting: int) -> Numbers:
    """`total` counts the messages of the queue, the same for all groups; expired ones count nowhere."""
    if found is None:
        # To a group that has not received yet, every message is available.
        return _numbers_reply(total, 0, 0, 0, total, waiting)
    available = max(0, min(found.available, total - found.in_progress - found.redo))
    done = max(0, min(found.done, total - found.in_progress - found.redo - available))
    return _numbers_reply(total, found.in_progress, found.redo, done, available, found.consumers + waiting)


def _numbers_reply(total: int, in_progress: int, redo: int, done: int, available: int, consumers: int) -> Numbers:
    return {
        "total": total,
        "inprogress": in_progress,
        "redo": redo,
        "done": done,
        "available": available,
        "consumers": consumers,
    }
