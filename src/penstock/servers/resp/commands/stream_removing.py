"""XDEL, XTRIM, and what XADD does with MAXLEN and MINID: entries that leave before their retention ends."""

from __future__ import annotations

import msgspec

from penstock.servers.access import Right
from penstock.servers.resp.arguments import QueueName, Words
from penstock.servers.resp.commands.bounds import after_bound
from penstock.servers.resp.commands.entries import BEYOND, Bound, is_whole_id, message_entry_id, read_parts
from penstock.servers.resp.session import Begun, Session
from penstock.servers.resp.table import Order, command
from penstock.servers.resp.words import CommandError, quoted

FAMILY = "stream"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
# With ~ entries leave by whole nodes of this many, as in Redis: trimming then costs nothing for most of the adds.
NODE = 100
# And not more than this at a time, unless LIMIT says otherwise.
MOST_AT_ONCE = 100 * NODE


class Trim(msgspec.Struct, frozen=True):
    """All but the newest `keep` entries, or all with ids before `least`."""

    keep: int | None
    least: Bound | None
    is_rough: bool
    limit: int

    def apply(self, session: Session, queue: str) -> int:
        """Inside a call; how many entries have left."""
        engine = session.door.engine
        if self.least is not None:
            upto = after_bound(session, queue, self.least)
            if self.is_rough and len(engine.browse(queue, 0, upto, NODE)) < NODE:
                return 0
            return engine.trim(queue, upto=upto)
        assert self.keep is not None
        if not self.is_rough:
            return engine.trim(queue, keep=self.keep)
        length = engine.unread(queue)
        excess = (length - self.keep) // NODE * NODE
        if self.limit:
            excess = min(excess, self.limit)
        return engine.trim(queue, keep=length - excess) if excess > 0 else 0


def read_trim(words: list[bytes], at: int) -> tuple[int, Trim]:
    """`MAXLEN ~ 1000 LIMIT 10`: where it ends, and what it says."""
    is_length = words[at].upper() == b"MAXLEN"
    at += 1
    is_rough = at < len(words) and words[at] == b"~"
    if at < len(words) and words[at] in (b"~", b"="):
        at += 1
    if at >= len(words):
        raise CommandError("ERR syntax error: MAXLEN and MINID need a threshold")
    keep = _count(words[at], "MAXLEN") if is_length else None
    least = None if is_length else Bound(*read_parts(words[at]))
    at += 1
    limit = MOST_AT_ONCE if is_rough else 0
    if at + 1 < len(words) and words[at].upper() == b"LIMIT":
        limit = _count(words[at + 1], "LIMIT")
        if not is_rough:
            raise CommandError("ERR syntax error, LIMIT cannot be used without the special ~ option")
        at += 2
    return at, Trim(keep, least, is_rough, limit)


def _count(word: bytes, name: str) -> int:
    if word[:1] == b"-" and word[1:].isdigit():
        raise CommandError(f"ERR The {name} argument must be >= 0.")
    if not word.isdigit() or len(word) > 18:
        raise CommandError(NOT_AN_INTEGER)
    return int(word)


@command(
    "XTRIM", Order.TURN, Right.MANAGE, FAMILY, usage="XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count]", least=2
)
def trim(session: Session, queue: QueueName, words: Words) -> Begun:
    """Remove the oldest entries: all but a number of them, or all before an id. Gives back how many."""
    if not words or words[0].upper() not in (b"MAXLEN", b"MINID"):
        raise CommandError("ERR syntax error: XTRIM needs MAXLEN or MINID")
    at, trim = read_trim(words, 0)
    if at != len(words):
        raise CommandError(f"ERR syntax error: {quoted(words[at])} is not expected here")
    return session.door.change(lambda: trim.apply(session, queue), lambda count: count)


@command("XDEL", Order.TURN, Right.MANAGE, FAMILY, usage="XDEL key id [id ...]", least=1)
def delete(session: Session, queue: QueueName, words: Words) -> Begun:
    """Remove entries; gives back how many of them were there."""
    parts = [read_parts(word) for word in words]
    wanted = [
        (word.decode(), position)
        for word, (_, position) in zip(words, parts, strict=True)
        if is_whole_id(word) and position is not None and 0 < position < BEYOND
    ]
    engine = session.door.engine

    def operation() -> int:
        ids = [
            one.id
            for name, position in wanted
            for one in engine.browse(queue, position - 1, position, 1)
            if message_entry_id(one) == name
        ]
        return engine.remove(queue, ids)

    return session.door.change(operation, lambda count: count)


@command("XSETID", Order.HERE, Right.MANAGE, FAMILY, usage="XSETID key last-id", least=1)
def set_id(session: Session, queue: QueueName, words: Words) -> Begun:
    """Refused: the ids of a stream follow from time and place, and cannot be set."""
    raise CommandError("ERR XSETID is not possible here: the ids of a queue follow from time and place")
