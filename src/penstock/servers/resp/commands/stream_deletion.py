"""XDEL, XTRIM, and MAXLEN and MINID of XADD: remove entries before their retention ends."""

from __future__ import annotations

import msgspec

from penstock.servers.access import Right
from penstock.servers.resp.arguments import QueueName, Words
from penstock.servers.resp.commands.bounds import after_bound
from penstock.servers.resp.commands.entries import BEYOND, Bound, is_whole_id, message_entry_id, read_parts
from penstock.servers.resp.errors import CommandError, quoted
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
NOT_AN_INTEGER = "ERR value is not an integer or out of range"
# With ~ entries are removed by whole nodes of this size, as in Redis: most adds then trim nothing.
NODE = 100
# The default of LIMIT.
MAX_AT_ONCE = 100 * NODE
# LIMIT 0 means no limit.
MAX_ENTRIES = 1_000_000


POLICIES = (b"KEEPREF", b"DELREF", b"ACKED")


class Trim(msgspec.Struct, frozen=True):
    """Remove all but the newest `keep` entries, or all with ids below `least`."""

    keep: int | None
    least: Bound | None
    is_rough: bool
    limit: int

    def apply(self, session: ClientSession, queue: str) -> int:
        """Inside an operation: returns how many entries were removed."""
        engine = session.backend.engine
        if self.least is not None:
            upto = after_bound(session, queue, self.least)
            return self._trim_before(session, queue, upto) if self.is_rough else engine.trim(queue, upto=upto)
        assert self.keep is not None
        if not self.is_rough:
            return engine.trim(queue, keep=self.keep)
        length = engine.unread(queue)
        excess = self._whole_nodes(length - self.keep)
        return engine.trim(queue, keep=length - excess) if excess > 0 else 0

    def _trim_before(self, session: ClientSession, queue: str, upto: int) -> int:
        """Remove whole nodes of the entries up to a position."""
        engine = session.backend.engine
        places = engine.places(queue, 0, upto, self.limit or MAX_ENTRIES)
        count = self._whole_nodes(len(places))
        return engine.trim(queue, upto=places[count - 1][0]) if count else 0

    def _whole_nodes(self, excess: int) -> int:
        return max(0, min(excess, self.limit or excess)) // NODE * NODE


def read_trim(words: list[bytes], at: int) -> tuple[int, Trim]:
    """Parse `MAXLEN ~ 1000 LIMIT 10`; also returns where it ends."""
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
    limit = MAX_AT_ONCE if is_rough else 0
    if at + 1 < len(words) and words[at].upper() == b"LIMIT":
        limit = _count(words[at + 1], "LIMIT")
        if not is_rough:
            raise CommandError("ERR syntax error, LIMIT cannot be used without the special ~ option")
        at += 2
    return at, Trim(keep, least, is_rough, limit)


def read_policy(word: bytes) -> bool:
    """Whether it is KEEPREF, DELREF or ACKED. Trimmed entries leave no references behind."""
    if word.upper() == b"ACKED":
        raise CommandError("ERR ACKED is not possible when trimming: XDELEX with ACKED deletes single entries")
    return word.upper() in POLICIES


def _count(word: bytes, name: str) -> int:
    if word[:1] == b"-" and word[1:].isdigit():
        raise CommandError(f"ERR The {name} argument must be >= 0.")
    if not word.isdigit() or len(word) > 18:
        raise CommandError(NOT_AN_INTEGER)
    return int(word)


@command(
    "XTRIM",
    Order.TURN,
    Right.MANAGE,
    FAMILY,
    usage="XTRIM key MAXLEN|MINID [=|~] threshold [LIMIT count] [KEEPREF|DELREF]",
    least=2,
)
def trim(session: ClientSession, queue: QueueName, words: Words) -> Begun:
    """Remove the oldest entries: all but a number of them, or all before an id. Returns how many."""
    if not words or words[0].upper() not in (b"MAXLEN", b"MINID"):
        raise CommandError("ERR syntax error: XTRIM needs MAXLEN or MINID")
    at, trim = read_trim(words, 0)
    if at < len(words):
        at += read_policy(words[at])
    if at != len(words):
        raise CommandError(f"ERR syntax error: {quoted(words[at])} is not expected here")
    return session.backend.write(lambda: trim.apply(session, queue))


@command("XDEL", Order.TURN, Right.MANAGE, FAMILY, usage="XDEL key id [id ...]", least=1)
def delete(session: ClientSession, queue: QueueName, words: Words) -> Begun:
    """Remove entries. Returns how many of them existed."""
    parts = [read_parts(word) for word in words]
    wanted = [
        (word.decode(), position)
        for word, (_, position) in zip(words, parts, strict=True)
        if is_whole_id(word) and position is not None and 0 < position < BEYOND
    ]
    engine = session.backend.engine

    def operation() -> int:
        ids = [
            one.id
            for name, position in wanted
            for one in engine.browse(queue, position - 1, position, 1)
            if message_entry_id(one) == name
        ]
        return engine.remove(queue, ids)

    return session.backend.write(operation)
