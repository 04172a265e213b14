"""QSTATUS and QINFO: how queues and their groups are."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from penstock.domain.observations import GroupStats
from penstock.engines.contract import Engine
from penstock.servers.access import Right
from penstock.servers.resp.arguments import Words, read_name
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.words import CommandError
from penstock.servers.resp.work import Work

FAMILY = "queue"
USAGE = "[queue ...] [GROUPS group ...]"
Numbers = dict[str, int]
Status = dict[str, dict[str, Numbers]]


@command("QSTATUS", Order.ALONE, Right.LOOK, FAMILY, usage=f"QSTATUS {USAGE}")
def status(session: Session, words: Words) -> Begun:
    """Numbers about queues and their groups, for programs."""
    return _status(session, words, _told)


@command("QINFO", Order.ALONE, Right.LOOK, FAMILY, usage=f"QINFO {USAGE}")
def info(session: Session, words: Words) -> Begun:
    """Numbers about queues and their groups, for people."""
    return _status(session, words, _lines)


def _told(found: Status) -> Reply:
    return [[queue, groups] for queue, groups in found.items()]


def _lines(found: Status) -> Reply:
    rows = [(queue, group, numbers) for queue, groups in found.items() for group, numbers in groups.items()]
    wide = max((len(group) for _, group, _ in rows), default=0)
    return [
        f"{queue} {group:<{wide}} " + " ".join(f"{name}:{number}" for name, number in numbers.items())
        for queue, group, numbers in rows
    ]


def _status(session: Session, words: list[bytes], tell: Callable[[Status], Reply]) -> Work:
    queues, groups = _names(words)
    session.check(Right.LOOK, *queues)
    engine = session.door.engine

    def operation() -> dict[str, tuple[dict[str, GroupStats], int]]:
        wanted = queues or [info.name for info in engine.queues() if session.may(Right.LOOK, info.name)]
        return {queue: (_exact_stats(engine, queue), engine.unread(queue)) for queue in wanted}

    def finish(found: dict[str, tuple[dict[str, GroupStats], int]]) -> Reply:
        counted: Status = {}
        for queue, (stats, unread) in found.items():
            names = groups or list(stats)
            counted[queue] = {name: _numbers(session, queue, name, stats, unread) for name in names}
        return tell(counted)

    return session.door.look(operation, finish)


def _exact_stats(engine: Engine, queue: str) -> dict[str, GroupStats]:
    """A lease that has just ended is available again, though nobody has noticed yet."""
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


def _numbers(session: Session, queue: str, group: str, stats: dict[str, GroupStats], unread: int) -> Numbers:
    told = session.server.desks.told(queue, group)
    found = stats.get(group)
    if found is None:
        # A group that has done nothing yet could have everything that is there.
        return _told_numbers(unread, 0, 0, 0, unread, told)
    total = found.in_progress + found.redo + found.done + found.available
    return _told_numbers(total, found.in_progress, found.redo, found.done, found.available, found.consumers + told)


def _told_numbers(total: int, in_progress: int, redo: int, done: int, available: int, consumers: int) -> Numbers:
    return {
        "total": total,
        "inprogress": in_progress,
        "redo": redo,
        "done": done,
        "available": available,
        "consumers": consumers,
    }
