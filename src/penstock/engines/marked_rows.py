"""Marks as engines over positions and Redis write them: a place in the log or the audit of a queue, named by the last
row before it.

A mark is the text `number:at`: the position of a message or the number of an audit entry, and the time of that row. It
may be kept outside the store, for example in a Spark checkpoint. The time guards against a store restored from a copy,
or a replica promoted with loss, which gives the same numbers to rows with other times. The beginning is 0; a plain
number is a mark of an earlier version, without a time.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain import refusals
from penstock.engines.contract import Mark, Table


class MarkedRow(NamedTuple):
    """The last row before a mark. The beginning and marks of earlier versions have no time."""

    number: int
    at: int | None = None

    @property
    def mark(self) -> Mark:
        return self.number if self.at is None else f"{self.number}:{self.at}"


BEGINNING = MarkedRow(0)


def parse(mark: Mark) -> MarkedRow:
    if isinstance(mark, int):
        return MarkedRow(mark)
    number, _, at = mark.partition(":")
    if not (number.isdecimal() and at.isdecimal()):
        raise refusals.mark_invalid(mark)
    return MarkedRow(int(number), int(at))


def kind_of(table: Table) -> str:
    return "messages" if table == "messages" else "audit"


def check_untrimmed(queue: str, table: Table, start: MarkedRow, end: MarkedRow, begins: int) -> None:
    """Refuse a window that begins before what is left of the log."""
    if start.number < begins and end.number > start.number:
        raise refusals.range_trimmed(queue, table, start.number + 1, min(end.number, begins), begins)
