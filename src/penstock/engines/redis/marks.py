"""Marks of a queue (`marked_rows`)."""

from __future__ import annotations

from penstock.domain import refusals
from penstock.engines.contract import Table
from penstock.engines.marked_rows import BEGINNING, MarkedRow, kind_of
from penstock.engines.redis.connection import RedisDatabase


def last_row(
    database: RedisDatabase, queue: str, table: Table, *, at: int | None = None, trimmed: bool = False
) -> MarkedRow:
    """The last row of the queue, of those sent before a time, or of those that were trimmed."""
    found = database.read("last_row", queue, kind=kind_of(table), at=at, trimmed=trimmed)
    return MarkedRow(*found) if found else BEGINNING


def at_number(database: RedisDatabase, queue: str, table: Table, number: int) -> MarkedRow:
    """The mark after a row known by its number; without a time when the queue has no such row."""
    times, _, _ = database.read("times", queue, kind=kind_of(table), number=number)
    return MarkedRow(number, times[0] if times else None)


def check(database: RedisDatabase, queue: str, table: Table, place: MarkedRow) -> None:
    """Refuse a mark of another log. A mark whose row was trimmed with later rows is left to the caller."""
    times, last, trimmed = database.read("times", queue, kind=kind_of(table), number=place.number)
    if place.number > last:
        raise refusals.mark_beyond_log(queue, table, place.mark, last)
    if place.at is not None and place.at not in times and (times or place.number >= trimmed):
        raise refusals.mark_diverged(queue, table, place.mark)
