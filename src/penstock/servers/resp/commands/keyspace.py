"""Queues and locks as keys: which of them exist for Redis clients, and patterns of keys.

A queue is a key of type stream while it has an entry or a group: one that was deleted, or that only has a policy, does
not exist. A lock is a key of type string while it is held.
"""

from __future__ import annotations

import hashlib

from penstock.servers.access import Right
from penstock.servers.glob_pattern import ANY, Token, match
from penstock.servers.resp import locks
from penstock.servers.resp.session import ClientSession

STREAM, STRING = "stream", "string"
# Wide enough for few collisions, and exact in clients that read numbers as doubles.
CURSOR_BITS = 48


def type_of(session: ClientSession, key: str) -> str | None:
    """Inside an operation; None for a key that does not exist."""
    if exists(session, key):
        return STREAM
    return None if locks.find(session.backend.engine, key) is None else STRING


def exists(session: ClientSession, queue: str) -> bool:
    """Inside an operation: whether the stream exists."""
    engine = session.backend.engine
    return bool(engine.groups(queue)) or engine.unread(queue) > 0


def visible_keys(session: ClientSession) -> dict[str, str]:
    """Inside an operation: the keys that the user may see, with their types."""
    engine = session.backend.engine
    found = {name: STRING for name in locks.held(engine) if session.may(Right.LOOK, name)}
    seen = [one for one in engine.queues() if session.may(Right.LOOK, one.name)]
    return found | {one.name: STREAM for one in seen if one.groups or engine.unread(one.name) > 0}


def place(name: str) -> int:
    """A hash of the name, which is the order of SCAN: an iteration returns every key that exists all the time,
    whatever is created or deleted meanwhile."""
    digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
    return 1 + (int.from_bytes(digest) >> (64 - CURSOR_BITS))


class Glob:
    """A glob-style pattern of Redis: `*`, `?`, `[a-c]`, `[^a-c]`, and a backslash to escape."""

    def __init__(self, pattern: bytes) -> None:
        self._tokens = _tokens(pattern)

    def matches(self, name: str) -> bool:
        return match(self._tokens, name.encode())


ANY_BYTE = frozenset(range(256))


def _tokens(pattern: bytes) -> list[Token]:
    tokens: list[Token] = []
    at = 0
    while at < len(pattern):
        byte = pattern[at : at + 1]
        at += 1
        if byte == b"*":
            tokens.append(None)
        elif byte == b"?":
            tokens.append(ANY)
        elif byte == b"[":
            at, chosen = _class(pattern, at)
            tokens.append(chosen)
        else:
            if byte == b"\\" and at < len(pattern):
                byte = pattern[at : at + 1]
                at += 1
            tokens.append(frozenset(byte))
    return tokens


def _class(pattern: bytes, at: int) -> tuple[int, frozenset[int]]:
    """Parse `a-c]` or `^a-c]`: where it ends, and its bytes. As in Redis, an unclosed one ends with the pattern."""
    negated = pattern[at : at + 1] == b"^"
    at += negated
    chosen: set[int] = set()
    while at < len(pattern) and pattern[at : at + 1] != b"]":
        if pattern[at : at + 1] == b"\\" and at + 1 < len(pattern):
            at += 1
            chosen.add(pattern[at])
        elif pattern[at + 1 : at + 2] == b"-" and at + 2 < len(pattern):
            low, high = sorted((pattern[at], pattern[at + 2]))
            chosen.update(range(low, high + 1))
            at += 2
        else:
            chosen.add(pattern[at])
        at += 1
    return at + 1, (ANY_BYTE - chosen) if negated else frozenset(chosen)
