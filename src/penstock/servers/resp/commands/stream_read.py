"""XREAD: read streams without a group. Entries are not leased, and every client gets all of them.

A client continues after the last id it has read, so nothing may appear later before that id: entries are read up to
where the stream is settled. Those beyond wait for transactions that are still sending to the stream.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import NamedTuple

import msgspec

from penstock.servers.access import Right
from penstock.servers.reply_size import count_for_next
from penstock.servers.resp.arguments import Words
from penstock.servers.resp.commands.bounds import upto_bound
from penstock.servers.resp.commands.entries import Bound, Entry, message_entry, read_parts
from penstock.servers.resp.commands.stream_chunks import browse, first_entries
from penstock.servers.resp.commands.stream_group_read import WITHOUT_COUNT, read_options, read_streams
from penstock.servers.resp.encoder import NO_ARRAY, Pairs, Reply
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.pending import Pending
from penstock.servers.resp.session import Begun, ClientSession
from penstock.servers.resp.table import Order, command

FAMILY = "stream"
BEGINNING = 0
# A wait is restarted after this time.
LONG_SECONDS = 3600.0
NEWEST = b"$"
LAST_ENTRY = b"+"
# Poll interval while an entry waits for a transaction to end: a rollback sends no notification.
UNSETTLED_SECONDS = 0.05


class _Place(NamedTuple):
    """Where to read a stream: after a position, or only the last entry."""

    queue: str
    after: int
    is_last_only: bool


class _Following(msgspec.Struct, frozen=True):
    count: int
    block: float | None  # seconds; 0 is for ever
    streams: list[tuple[str, bytes]]


@command(
    "XREAD",
    Order.ALONE,
    Right.LOOK,
    FAMILY,
    usage="XREAD [COUNT count] [BLOCK milliseconds] STREAMS key [key ...] id [id ...]",
    least=3,
    brings_messages=True,
)
def read(session: ClientSession, words: Words) -> Begun:
    """Read entries of streams that come after the given ids; $ means those still to come, + the last entry."""
    following = _read_words(words)
    session.check(Right.LOOK, *(queue for queue, _ in following.streams))
    if following.block is None or session.is_executing:
        return _once(session, following)
    return _wait(session, following)


def _once(session: ClientSession, following: _Following) -> Pending:
    def operation() -> Reply:
        return _entries(session, following.count, _places(session, following))

    return session.backend.read(operation)


async def _wait(session: ClientSession, following: _Following) -> Reply:
    store = session.backend.store
    block = following.block or 0
    most = session.server.max_block_seconds
    if most and (not block or block > most):
        block = most
    loop = asyncio.get_running_loop()
    ends = loop.time() + block if block else None
    places: list[_Place] = await store.executor.read(partial(_places, session, following))
    with session.waiting(NO_ARRAY):
        while True:
            reply: Reply = await store.executor.read(partial(_entries, session, following.count, places))
            left = LONG_SECONDS if ends is None else ends - loop.time()
            if reply is not NO_ARRAY or left <= 0 or session.server.is_closing:
                return reply
            # Clients at the end of the stream share one wait, which is polled once for all of them.
            key = ("entries", *places)
            await store.executor.wait(key, partial(_ready_in, session, places), left)


def _places(session: ClientSession, following: _Following) -> list[_Place]:
    """Inside an operation: where to read each stream. One that is named twice is read twice, as in Redis."""
    return [_place(session, queue, word) for queue, word in following.streams]


def _place(session: ClientSession, queue: str, word: bytes) -> _Place:
    if word == LAST_ENTRY:
        return _Place(queue, BEGINNING, True)
    if word == NEWEST:
        engine = session.backend.engine
        newest = engine.browse(queue, BEGINNING, engine.settled(queue), 1, backwards=True)
        return _Place(queue, newest[0].position or BEGINNING if newest else BEGINNING, False)
    milliseconds, position = read_parts(word)
    return _Place(queue, upto_bound(session, queue, Bound(milliseconds, position or 0)), False)


def _entries(session: ClientSession, count: int, places: list[_Place]) -> Reply:
    """Inside an operation."""
    pairs: list[tuple[str, list[Entry]]] = []
    used = 0
    for queue, after, is_last_only in places:
        if is_last_only:
            found = browse(session, queue, after, None, 1, backwards=True)
        else:
            found = first_entries(session, queue, after, count_for_next(count, used))
        used += sum([len(one.payload) for one in found])
        if found:
            pairs.append((queue, [message_entry(one) for one in found]))
    return Pairs(pairs) if pairs else NO_ARRAY


def _ready_in(session: ClientSession, places: list[_Place]) -> float | None:
    engine = session.backend.engine
    firsts = [
        (place.queue, one.position or 0) for place in places for one in engine.browse(place.queue, place.after, None, 1)
    ]
    if any(position <= engine.settled(queue) for queue, position in firsts):
        return 0
    return UNSETTLED_SECONDS if firsts else None


def _read_words(words: list[bytes]) -> _Following:
    count, block, _, at = read_options("XREAD", words, 0, WITHOUT_COUNT)
    return _Following(count, block, read_streams("xread", words[at:], "an ID, '+', or '$'", _check_place))


def _check_place(place: bytes) -> None:
    if place == b">":
        raise CommandError("ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> option.")
    if place not in (NEWEST, LAST_ENTRY):
        read_parts(place)
