"""Locks of Redis clients: a key with a token, set only if it does not exist, with an optional expiry.

A lock is stored in the ledger, so that all servers of a store share it, and changed by compare-and-set: of two clients
that acquire or change it at the same time one fails.
"""

from __future__ import annotations

import msgspec

from penstock.engines.contract import Engine
from penstock.servers.resp.errors import CommandError

KIND = "resp_lock"
# All are scanned when one is acquired, to drop expired ones.
MAX_LOCKS = 1_000
MAX_TOKEN_BYTES = 1_024
# In microseconds, the year 148,000: later times do not fit into the engines' integers.
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
    """Acquire the lock, and return whether it was free."""
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
    """Set the expiry from now, or add to it; returns whether the lock was held with this token. With `needs_end` a
    lock without expiry is not changed."""
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
