"""Windows: how Spark reads. The functions answer with ranges and counts; the parts are planned here, because what lies
before the horizon does not change between calls."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.domain import refusals
from penstock.domain.results import Part
from penstock.engines import marked_rows, window_plan
from penstock.engines.contract import Mark, Table
from penstock.engines.marked_rows import MarkedRow
from penstock.engines.redis import marks
from penstock.engines.redis.connection import RedisDatabase

LAST = 2**53 - 1


def require(database: RedisDatabase, queue: str) -> None:
    if not database.has(queue):
        raise refusals.no_queue(queue, database.queue_names())


def cut(
    database: RedisDatabase, queue: str, start: Mark, end: Mark, rows: int | None, size: int | None, table: Table
) -> Mark:
    require(database, queue)
    first, last = marked_rows.parse(start).number, marked_rows.parse(end).number
    if size is not None and table != "messages":
        raise refusals.no_size(table)
    if table == "dead_letters":
        return end
    upto = last
    if rows is not None:
        upto = (
            window_plan.end_of_rows(ranges(database, queue, first, last), rows, last)
            if table == "messages"
            else window_plan.end_of_weight(entries(database, queue, first, last, table), rows, last)
        )
    if size is not None:
        upto = window_plan.end_of_weight(sizes(database, queue, first, upto), size, upto)
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
    first, last = marked_rows.parse(start), marked_rows.parse(end)
    _check(database, queue, table, first, last)
    if last.number <= first.number:
        return []
    if table == "messages":
        found = window_plan.parts(ranges(database, queue, first.number, last.number), max(1, parts))
    else:
        found = _entry_parts(database, queue, first.number, last.number, max(1, parts), table)
    return [Part(queue, tuple(ranges), count, table, first.number, last.number) for ranges, count in found]


def _check(database: RedisDatabase, queue: str, table: Table, start: MarkedRow, end: MarkedRow) -> None:
    marks.check(database, queue, table, start)
    marks.check(database, queue, table, end)
    begins = marks.last_row(database, queue, table, trimmed=True).number
    marked_rows.check_untrimmed(queue, table, start, end, begins)


def _entry_parts(
    database: RedisDatabase, queue: str, start: int, end: int, parts: int, table: Table
) -> Iterator[tuple[list[window_plan.Range], int]]:
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
