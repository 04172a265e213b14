"""Locks of Redis clients: a key with a token that is set only where there is none, and may end by itself.

A lock lives in the store's ledger, so that all servers of a store see the same one, and is changed by compare-and-set:
of two clients that take or change it at once one finds that it was too late.
"""

from __future__ import annotations

import msgspec

from penstock.engines.contract import Engine
from penstock.servers.resp.errors import CommandError

KIND = "resp_lock"
# Each is looked at when one is taken, to drop those that have ended.
MAX_LOCKS = 1_000
MAX_TOKEN_BYTES = 1_024
# Microseconds, in the year 148,000: beyond it engines have no number for a time.
LAST_TIME = 1 << 62


class Lock(msgspec.Struct, frozen=True):
    token: bytes
    ends_at: int | None  # microseconds; None never

    def is_held(self, now: int) -> bool:
        return self.ends_at is None or self.ends_at > now


_decode = msgspec.json.Decoder(Lock).decode


def _encode(lock: Lock) -> str:
    return msgspec.json.encode(lock).decode()


def find(engine: Engine, name: str) -> Lock | None:
    """Inside an operation, as all here: the lock, if it is held."""
    known = engine.ledger(KIND, name).get(name)
    lock = None if known is None else _decode(known)
    return lock if lock is not None and lock.is_held(engine.now()) else None


def held(engine: Engine) -> dict[str, Lock]:
    """All held locks, by name."""
    now = engine.now()
    locks = {name: _decode(value) for name, value in engine.ledger(KIND).items()}
    return {name: lock for name, lock in locks.items() if lock.is_held(now)}


def take(engine: Engine, name: str, token: bytes, milliseconds: int | None) -> bool:
    """Take the lock, and return whether it was free."""
    if len(token) > MAX_TOKEN_BYTES:
        raise CommandError(f"ERR the token of a lock may have {MAX_TOKEN_BYTES} bytes, not {len(token)}")
    now = engine.now()
    known = engine.ledger(KIND)
    ended = [one for one, value in known.items() if not _decode(value).is_held(now)]
    if name in known and name not in ended:
        return False
    if len(known) - len(ended) >= MAX_LOCKS:
        raise CommandError(f"ERR {MAX_LOCKS} locks are held already: free some, or give them a time to end")
    lock = Lock(token, None if milliseconds is None else now + milliseconds * 1000)
    removes = [one for one in ended if one != name]
    return engine.record(KIND, {name: _encode(lock)}, removes, {name: known.get(name)})


def free(engine: Engine, name: str, token: bytes | None = None) -> bool:
    """Release the lock, and return whether it was held, with this token if one is given."""
    lock = find(engine, name)
    if lock is None or token not in (None, lock.token):
        return False
    return engine.record(KIND, {}, [name], {name: _encode(lock)})


def extend(engine: Engine, name: str, token: bytes, milliseconds: int, *, adds: bool, needs_end: bool) -> bool:
    """Let it end so long from now, or so much later than it would; whether it was held with this token. With
    `needs_end` one that would never end is left alone."""
    lock, now = find(engine, name), engine.now()
    if lock is None or lock.token != token or (needs_end and lock.ends_at is None):
        return False
    begins = lock.ends_at if adds and lock.ends_at is not None else now
    return set_end(engine, name, lock, begins + milliseconds * 1000)


def set_end(engine: Engine, name: str, lock: Lock, ends_at: int | None) -> bool:
    """Replace the lock if it is unchanged, and return whether it was."""
    if ends_at is not None and ends_at >= LAST_TIME:
        raise CommandError("ERR invalid expire time: it is too far away")
    return engine.record(KIND, {name: _encode(Lock(lock.token, ends_at))}, expect={name: _encode(lock)})
