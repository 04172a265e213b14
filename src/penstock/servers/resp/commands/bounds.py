"""Convert ids of entries to positions in the log."""

from __future__ import annotations

from penstock.servers.resp.commands.entries import BEYOND, Bound, entry_id, message_entry_id
from penstock.servers.resp.session import ClientSession


def after_bound(session: ClientSession, queue: str, bound: Bound) -> int:
    """The position before the first entry of a range that starts at this bound."""
    if bound.position is None:
        return session.backend.engine.position_at(queue, bound.milliseconds * 1000)
    return _place(session, queue, bound.milliseconds, bound.position if bound.is_open else bound.position - 1)


def upto_bound(session: ClientSession, queue: str, bound: Bound) -> int:
    """The position of the last entry of a range that ends at this bound."""
    if bound.position is None:
        return session.backend.engine.position_at(queue, (bound.milliseconds + 1) * 1000)
    return _place(session, queue, bound.milliseconds, bound.position - 1 if bound.is_open else bound.position)


def _place(session: ClientSession, queue: str, milliseconds: int, position: int) -> int:
    """The last position with an id up to this one, whether or not it has an entry. Ids of the same millisecond compare
    by position, others by time."""
    engine = session.backend.engine
    if is_at(session, queue, milliseconds, position):
        return position
    earlier = engine.position_at(queue, milliseconds * 1000)
    if position <= earlier:
        return earlier
    return min(position, engine.position_at(queue, (milliseconds + 1) * 1000))


def is_at(session: ClientSession, queue: str, milliseconds: int, position: int) -> bool:
    """Whether an entry has exactly this id. A delayed entry has a later position than its time suggests."""
    if not 0 < position < BEYOND:
        return False
    found = session.backend.engine.browse(queue, position - 1, position, 1)
    return any(message_entry_id(one) == entry_id(milliseconds * 1000, position) for one in found)
