"""Entries of a stream between two positions: as a list, or in chunks that bound the memory of a long reply."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from penstock.domain.message import Message
from penstock.domain.timestamps import to_time
from penstock.servers.reply_size import MAX_BYTES, SMALL_LIMIT, first_piece, pieces
from penstock.servers.resp.commands.entries import entry_id, message_entry
from penstock.servers.resp.encoder import NO_ARRAY, Encoded, Reply, encode
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.session import ClientSession

# Payload bytes of a chunk, unless one entry is larger.
PIECE_BYTES = 1024 * 1024
# Position, time and bytes of an entry.
Place = tuple[int, int, int]


def browse(
    session: ClientSession, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
) -> list[Message]:
    """Inside an operation: entries up to where the stream is settled, without expired ones."""
    upto = _settled(session, queue, upto)
    return _unexpired(session, queue, after, upto, limit, backwards)


def first_entries(session: ClientSession, queue: str, after: int, limit: int) -> list[Message]:
    """Inside an operation: the next entries after a position, as many as a reply may have."""
    upto = _settled(session, queue, None)
    if limit > SMALL_LIMIT:
        places = first_piece(session.backend.engine.places(queue, after, upto, limit), _size)
        if not places:
            return []
        upto = places[-1][0]
    return _unexpired(session, queue, after, upto, limit, False)


def check_size(
    session: ClientSession, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool
) -> None:
    """Inside an operation: refuse a range that is too large for one reply, because a part would look complete."""
    end = _settled(session, queue, upto)
    places = session.backend.engine.places(queue, after, end, limit, backwards=backwards)
    size = sum(map(_size, places))
    if len(places) > 1 and size > MAX_BYTES:
        raise CommandError(
            f"ERR the entries of this range have {size} bytes, and inside MULTI a range may have {MAX_BYTES}: "
            "ask for fewer with COUNT, or outside of MULTI"
        )


def _settled(session: ClientSession, queue: str, upto: int | None) -> int:
    end = session.backend.engine.settled(queue)
    return end if upto is None else min(upto, end)


def _unexpired(session: ClientSession, queue: str, after: int, upto: int, limit: int, backwards: bool) -> list[Message]:
    engine = session.backend.engine
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
    session: ClientSession, queue: str, bounds: Callable[[], tuple[int, int | None]], limit: int, *, backwards: bool
) -> Reply:
    """The length of the array is sent first, so an entry that is removed meanwhile is sent without its fields."""
    read = session.backend.store.executor.read

    def look() -> list[Place]:
        after, upto = bounds()
        end = _settled(session, queue, upto)
        return session.backend.engine.places(queue, after, end, limit, backwards=backwards)

    places = await read(look)
    head = b"*%d\r\n" % len(places)
    for piece in pieces(places, _size, PIECE_BYTES):
        data = await read(partial(_encoded, session, queue, piece))
        if len(piece) == len(places):
            return Encoded(head + data)
        await session.write(head + data)
        head = b""
    return Encoded(head)


def _size(place: Place) -> int:
    return place[2]


def _encoded(session: ClientSession, queue: str, piece: list[Place]) -> bytes:
    """Inside an operation."""
    ends = sorted((piece[0][0], piece[-1][0]))
    found = {one.position: one for one in _unexpired(session, queue, ends[0] - 1, ends[1], len(piece), False)}
    parts = []
    for position, created_at, _ in piece:
        message = found.get(position)
        entry = [entry_id(created_at, position), NO_ARRAY] if message is None else message_entry(message)
        parts.append(encode(entry, session.protocol))
    return b"".join(parts)
