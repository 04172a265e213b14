"""Entries of a stream between two places: as a list, or in pieces, so that no long reply lies in memory as a whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from penstock.domain.message import Message
from penstock.domain.times import to_time
from penstock.servers.resp.commands.entries import entry_id, message_entry
from penstock.servers.resp.encoder import NO_ARRAY, Encoded, Reply, encode
from penstock.servers.resp.session import Session
from penstock.servers.taking import FEW, MOST_BYTES

# Payload of a piece, which may have one entry that is larger.
PIECE_BYTES = 1024 * 1024
# Position, time and bytes of an entry.
Place = tuple[int, int, int]


def browse(
    session: Session, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
) -> list[Message]:
    """Inside a call: entries up to where the stream is settled that have not expired; those are as good as gone."""
    upto = _settled(session, queue, upto)
    return _unexpired(session, queue, after, upto, limit, backwards)


def first_entries(session: Session, queue: str, after: int, limit: int) -> list[Message]:
    """Inside a call: the next entries after a place, as many as a reply may have."""
    upto = _settled(session, queue, None)
    if limit > FEW:
        places = session.door.engine.places(queue, after, upto, limit)
        if not places:
            return []
        upto = next(_pieces(places, MOST_BYTES))[-1][0]
    return _unexpired(session, queue, after, upto, limit, False)


def _settled(session: Session, queue: str, upto: int | None) -> int:
    end = session.door.engine.settled(queue)
    return end if upto is None else min(upto, end)


def _unexpired(session: Session, queue: str, after: int, upto: int, limit: int, backwards: bool) -> list[Message]:
    engine = session.door.engine
    now = to_time(engine.now())
    found: list[Message] = []
    while len(found) < limit:
        several = engine.browse(queue, after, upto, limit - len(found), backwards=backwards)
        found += [one for one in several if one.expires_at is None or one.expires_at > now]
        if len(found) == limit or not several:
            break
        last = several[-1].position or 0
        after, upto = (after, last - 1) if backwards else (last, upto)
    return found


async def range_in_pieces(
    session: Session, queue: str, bounds: Callable[[], tuple[int, int | None]], limit: int, *, backwards: bool
) -> Reply:
    """How many there are has to be said first. An entry that is removed meanwhile is told without its fields."""
    read = session.door.store._read

    def look() -> list[Place]:
        after, upto = bounds()
        end = _settled(session, queue, upto)
        return session.door.engine.places(queue, after, end, limit, backwards=backwards)

    places = await read(look)
    head = b"*%d\r\n" % len(places)
    for piece in _pieces(places, PIECE_BYTES):
        data = await read(partial(_encoded, session, queue, piece))
        if len(piece) == len(places):
            return Encoded(head + data)
        await session.write(head + data)
        head = b""
    return Encoded(head)


def _pieces(places: list[Place], size: int) -> Iterator[list[Place]]:
    """In order, each with at most so many bytes, or with one entry."""
    piece: list[Place] = []
    left = size
    for place in places:
        if piece and place[2] > left:
            yield piece
            piece, left = [], size
        piece.append(place)
        left -= place[2]
    if piece:
        yield piece


def _encoded(session: Session, queue: str, piece: list[Place]) -> bytes:
    """Inside a call."""
    ends = sorted((piece[0][0], piece[-1][0]))
    found = {one.position: one for one in _unexpired(session, queue, ends[0] - 1, ends[1], len(piece), False)}
    parts = []
    for position, created_at, _ in piece:
        message = found.get(position)
        entry = [entry_id(created_at, position), NO_ARRAY] if message is None else message_entry(message)
        parts.append(encode(entry, session.protocol))
    return b"".join(parts)
