"""How many entries a group is said to have read (ENTRIESREAD), which XINFO shows.

The store counts what a group has passed by itself. What a client says instead is kept in the store's ledger, as the
difference to that count, so that it grows with what the group reads and every server of the store shows the same.
"""

from __future__ import annotations

import msgspec

from penstock.domain.lifecycle import State
from penstock.domain.results import GroupStats
from penstock.servers.resp.session import ClientSession

KIND = "stream_entries_read"


def set_entries_read(session: ClientSession, queue: str, group: str, count: int | None) -> None:
    """Inside a call; without a count, what was said before is forgotten."""
    engine, key = session.backend.engine, _key(queue, group)
    if count is None:
        if key in engine.ledger(KIND, key):
            engine.record(KIND, {}, [key])
    else:
        passed = engine.unread(queue) - engine.stats(queue)[group].lag
        engine.record(KIND, {key: str(count - passed)})


def forget_entries_read(session: ClientSession, queue: str) -> None:
    """Inside a call: of all groups."""
    said = list(session.backend.engine.ledger(KIND, _prefix(queue)))
    if said:
        session.backend.engine.record(KIND, {}, said)


def entries_read(session: ClientSession, queue: str, group: str, stats: GroupStats) -> int | None:
    """Inside a call; None for a group that has not read, and of which nothing was said."""
    engine, key = session.backend.engine, _key(queue, group)
    said = engine.ledger(KIND, key).get(key)
    # An entry that was removed before the group came to it is cancelled there.
    ended = sum(stats.outcomes.values()) - stats.outcomes.get(State.CANCELLED, 0)
    if said is None and not (stats.in_progress or stats.redo or ended):
        return None
    return max(0, engine.unread(queue) - stats.lag + int(said or 0))


def _key(queue: str, group: str) -> str:
    return _prefix(queue) + msgspec.json.encode(group).decode()


def _prefix(queue: str) -> str:
    """Quoted, so that no two pairs of names have the same key."""
    return msgspec.json.encode(queue).decode()
