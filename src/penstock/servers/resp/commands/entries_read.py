"""The number of entries that a group has read (ENTRIESREAD), as XINFO shows it.

The store counts the entries that a group has passed. A number set by a client is stored in the ledger as the difference
to that count, so that it grows with the reads of the group and is the same on every server of the store.
"""

from __future__ import annotations

import msgspec

from penstock.domain.lifecycle import State
from penstock.domain.results import GroupStats
from penstock.servers.resp.session import ClientSession

KIND = "stream_entries_read"


def set_entries_read(session: ClientSession, queue: str, group: str, count: int | None) -> None:
    """Inside an operation. Without a count, forget the number that was set."""
    engine, key = session.backend.engine, _key(queue, group)
    if count is None:
        if key in engine.ledger(KIND, key):
            engine.record(KIND, {}, [key])
    else:
        passed = engine.unread(queue) - engine.stats(queue)[group].lag
        engine.record(KIND, {key: str(count - passed)})


def forget_entries_read(session: ClientSession, queue: str) -> None:
    """Inside an operation: forget the numbers of all groups."""
    said = list(session.backend.engine.ledger(KIND, _prefix(queue)))
    if said:
        session.backend.engine.record(KIND, {}, said)


def entries_read(session: ClientSession, queue: str, group: str, stats: GroupStats) -> int | None:
    """Inside an operation; None for a group that has not read and whose number was not set."""
    engine, key = session.backend.engine, _key(queue, group)
    said = engine.ledger(KIND, key).get(key)
    # An entry that was removed before the group read it is cancelled in the group.
    ended = sum(stats.outcomes.values()) - stats.outcomes.get(State.CANCELLED, 0)
    if said is None and not (stats.in_progress or stats.redo or ended):
        return None
    return max(0, engine.unread(queue) - stats.lag + int(said or 0))


def _key(queue: str, group: str) -> str:
    return _prefix(queue) + msgspec.json.encode(group).decode()


def _prefix(queue: str) -> str:
    """Names are quoted, so that no two pairs have the same key."""
    return msgspec.json.encode(queue).decode()
