"""Windows: how Spark reads. The functions answer with ranges and counts; the parts are planned here, because what lies
before the horizon does not change between calls."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.domain import refusals
from penstock.domain.results import Part
from penstock.engines import window_ends
from penstock.engines.contract import Mark, Table
from penstock.engines.redis import marks
from penstock.engines.redis.connection import RedisDatabase
from penstock.engines.redis.marks import LogPlace

# Ranges this close to each other are read as one: skipping a few foreign rows is cheaper than another call.
NEAR = 64
LAST = 2**53 - 1


def require(database: RedisDatabase, queue: str) -> None:
    if not database.has(queue):
        raise refusals.no_queue(queue, database.queue_names())


def cut(
    database: RedisDatabase, queue: str, start: Mark, end: Mark, rows: int | None, size: int | None, table: Table
) -> Mark:
    require(database, queue)
    first, last = marks.parse(start).number, marks.parse(end).number
    if size is not None and table != "messages":
        raise refusals.no_size(table)
    if table == "dead_letters":
        return end
    upto = last
    if rows is not None:
        upto = (
            window_ends.of_rows(ranges(database, queue, first, last), rows, last)
            if table == "messages"
            else window_ends.of_weight(entries(database, queue, first, last, table), rows, last)
        )
    if size is not None:
        upto = window_ends.of_weight(sizes(database, queue, first, upto), size, upto)
    return end if upto == last else marks.at_number(database, queue, table, upto).mark


def sizes(database: RedisDatabase, queue: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The position and the payload size of each message between two positions."""
    for first, last in ranges(database, queue, start, end):
        while first <= last:
            for position, length in database.read("sizes", queue, first=first, last=last):
                first = position
                yield position, length
            first += 1


def ranges(database: RedisDatabase, queue: str, start: int, end: int) -> list[tuple[int, int]]:
    return [(first, last) for first, last in database.read("ranges", queue, start=start, upto=end)]


def entries(database: RedisDatabase, queue: str, start: int, end: int, table: Table) -> Iterator[tuple[int, int]]:
    """Each entry between two numbers, and how many rows it has."""
    while start < end:
        found, start = database.read("entries", queue, start=start, upto=end, ended=table == "archive")
        yield from found


# -- windows and their parts ---------------------------------------------------------------------------------------


def window(database: RedisDatabase, queue: str, start: Mark, end: Mark, parts: int, table: Table) -> list[Part]:
    require(database, queue)
    if table == "dead_letters":
        _, _, count = database.read(
            "read_letters", queue, first=0, last=LAST, place=0, limit=0, size=0, payload=False, headers=False
        )
        return [Part(queue, ((0, LAST),), count, "dead_letters")] if count else []
    first, last = marks.parse(start), marks.parse(end)
    _check(database, queue, table, first, last)
    if last.number <= first.number:
        return []
    plan = _message_parts if table == "messages" else _entry_parts
    found = plan(database, queue, first.number, last.number, max(1, parts), table)
    return [Part(queue, tuple(ranges), count, table, first.number, last.number) for ranges, count in found]


def _check(database: RedisDatabase, queue: str, table: Table, start: LogPlace, end: LogPlace) -> None:
    marks.check(database, queue, table, start)
    marks.check(database, queue, table, end)
    begins = marks.last_row(database, queue, table, trimmed=True).number
    if start.number < begins and end.number > start.number:
        raise refusals.range_trimmed(queue, table, start.number + 1, min(end.number, begins), begins)


Planned = tuple[list[tuple[int, int]], int]


def _message_parts(
    database: RedisDatabase, queue: str, start: int, end: int, parts: int, _: Table
) -> Iterator[Planned]:
    found = ranges(database, queue, start, end)
    size = max(1, -(-sum(last - first + 1 for first, last in found) // parts))
    piece: list[tuple[int, int]] = []
    room = size
    for first, last in found:
        while first <= last:
            upto = min(last, first + room - 1)
            if piece and first - piece[-1][1] <= NEAR:
                piece[-1] = (piece[-1][0], upto)
            else:
                piece.append((first, upto))
            room -= upto - first + 1
            first = upto + 1
            if room == 0:
                yield piece, size
                piece, room = [], size
    if piece:
        yield piece, size - room


def _entry_parts(
    database: RedisDatabase, queue: str, start: int, end: int, parts: int, table: Table
) -> Iterator[Planned]:
    found = list(entries(database, queue, start, end, table))
    total = sum(count for _, count in found)
    share, passed, piece = 0, 0, (0, 0, 0)
    for entry, count in found:
        passed += count
        own = (passed - 1) * parts // total if total else 0
        if piece[2] and own != share:
            yield [(piece[0], piece[1])], piece[2]
            piece = (0, 0, 0)
        share = own
        piece = (piece[0] or entry, entry, piece[2] + count)
    if piece[2]:
        yield [(piece[0], piece[1])], piece[2]
