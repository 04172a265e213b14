"""Marks: a place in the log or the audit of a queue, named by the last row before it.

A mark is the text `number:at`: the position of a message or the number of an audit entry, and the time of that row. The
time guards against a store restored from a copy or a replica promoted with loss, which gives the same numbers to
rows with other times. The beginning is 0.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain import refusals
from penstock.engines.contract import Mark, Table
from penstock.engines.redis.connection import RedisDatabase


class LogPlace(NamedTuple):
    """The last row before a mark; the beginning has no time."""

    number: int
    at: int | None = None

    @property
    def mark(self) -> Mark:
        return self.number if self.at is None else f"{self.number}:{self.at}"


BEGINNING = LogPlace(0)


def parse(mark: Mark) -> LogPlace:
    if isinstance(mark, int):
        return LogPlace(mark)
    number, _, at = mark.partition(":")
    if not (number.isdecimal() and at.isdecimal()):
        raise refusals.mark_invalid(mark)
    return LogPlace(int(number), int(at))


def kind_of(table: Table) -> str:
    return "messages" if table == "messages" else "audit"


def last_row(
    database: RedisDatabase, queue: str, table: Table, *, at: int | None = None, trimmed: bool = False
) -> LogPlace:
    """The last row of the queue, of those sent before a time, or of those that were trimmed."""
    found = database.read("last_row", queue, kind=kind_of(table), at=at, trimmed=trimmed)
    return LogPlace(*found) if found else BEGINNING


def at_number(database: RedisDatabase, queue: str, table: Table, number: int) -> LogPlace:
    """The mark after a row known by its number; without a time when the queue has no such row."""
    times, _, _ = database.read("times", queue, kind=kind_of(table), number=number)
    return LogPlace(number, times[0] if times else None)


def check(database: RedisDatabase, queue: str, table: Table, place: LogPlace) -> None:
    """Refuse a mark of another log. A mark whose row was trimmed with later rows is left to the caller."""
    times, last, trimmed = database.read("times", queue, kind=kind_of(table), number=place.number)
    if place.number > last:
        raise refusals.mark_beyond_log(queue, table, place.mark, last)
    if place.at is not None and place.at not in times and (times or place.number >= trimmed):
        raise refusals.mark_diverged(queue, table, place.mark)
