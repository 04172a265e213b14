"""Marks: a place in the log or in the trail of a queue, named by the last row before it.

A mark is the text `number:at`: the position of a message or the number of an audit entry, and the time of that row.
It may be kept outside the store, in a checkpoint of Spark for example. The time is its witness: a store that was
restored from a copy gives the same numbers out again, but to rows with other times. A row that is gone is vouched for
by what was written down when it went. The beginning is 0, and a plain number is a mark of an earlier version, which had
no witness.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.domain.errors import InvalidInput, LogDiverged
from penstock.domain.names import shown
from penstock.engines.contract import Mark, Table
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

if TYPE_CHECKING:
    from penstock.engines.sqlite.queues import Queue

SQL = Statements("penstock.engines.sqlite", "sql/marks.sql")
# The end of each queue's trail is noted again when this many entries were written since.
NOTED_ENTRIES = 10_000
TRAIL_UPTO = "trail_upto"


class Place(NamedTuple):
    """The last row before a mark. Its time is not known for the beginning, and for marks of earlier versions."""

    number: int
    at: int | None = None

    @property
    def mark(self) -> Mark:
        return self.number if self.at is None else f"{self.number}:{self.at}"


BEGINNING = Place(0)


def parse(mark: Mark) -> Place:
    if isinstance(mark, int):
        return Place(mark)
    number, _, at = mark.partition(":")
    if not (number.isdecimal() and at.isdecimal()):
        raise InvalidInput(f"{shown(mark)} is not a mark of this store: its marks are like 25:1763424000000000, or 0")
    return Place(int(number), int(at))


def kind_of(table: Table) -> str:
    return "messages" if table == "messages" else "audit"


def last_row(transaction: Transaction, queue: Queue, table: Table, upto: int) -> Place:
    """The last row of the queue up to a number, whether it is still there or not."""
    statement = SQL.last_message if table == "messages" else SQL.last_entry
    row = transaction.row(statement, {"queue_id": queue.queue_id, "upto": upto})
    return BEGINNING if row is None else Place(*row)


def at_number(transaction: Transaction, queue: Queue, table: Table, number: int) -> Place:
    """The place behind a row that is known by its number; without a time when the queue has no such row."""
    times = _times(transaction, queue, table, number)
    return Place(number, times[0] if times else None)


def trimmed(transaction: Transaction, queue: Queue, table: Table) -> Place:
    """The last row that was trimmed: what is left begins behind it."""
    row = transaction.row(SQL.trimmed, {"queue_id": queue.queue_id, "kind": kind_of(table)})
    return BEGINNING if row is None else Place(*row)


def check(transaction: Transaction, queue: Queue, table: Table, place: Place) -> None:
    """Refuse a mark of a log that is not this one. One whose row was trimmed with later ones is left to the caller."""
    last: int = transaction.value(CONNECTION.last_position if table == "messages" else CONNECTION.last_entry)
    if place.number > last:
        raise LogDiverged(
            f"the {table} of queue {queue.name!r} end at {last}, before the mark {place.mark}: the store is older than "
            "what was read from it, perhaps a restored copy"
        )
    if place.at is None:
        return
    times = _times(transaction, queue, table, place.number)
    if place.at not in times and (times or place.number >= trimmed(transaction, queue, table).number):
        raise LogDiverged(
            f"the mark {place.mark} is behind a row of the {table} of queue {queue.name!r} that this store does not "
            "have: it was restored from a copy after that row was read, and has gone on otherwise"
        )


def _times(transaction: Transaction, queue: Queue, table: Table, number: int) -> list[int]:
    statement = SQL.message_times if table == "messages" else SQL.entry_times
    return [at for (at,) in transaction.rows(statement, {"queue_id": queue.queue_id, "number": number})]


def keep_last(transaction: Transaction, queue: Queue, upto: int) -> None:
    """Before messages up to a position are trimmed: the last of them."""
    place = last_row(transaction, queue, "messages", upto)
    if place.at is not None:
        bindings = {"queue_id": queue.queue_id, "kind": "messages", "number": place.number, "at": place.at}
        transaction.run(SQL.set_trimmed, bindings)


def keep_last_entry(transaction: Transaction, queue: Queue) -> None:
    """Before the whole trail is removed: its last entry."""
    place = last_row(transaction, queue, "audit", transaction.value(CONNECTION.last_entry))
    if place.at is not None:
        bindings = {"queue_id": queue.queue_id, "kind": "audit", "number": place.number, "at": place.at}
        transaction.run(SQL.set_trimmed, bindings)


def is_behind(transaction: Transaction) -> bool:
    """Whether so much was written that the ends of the trails should be noted."""
    last: int = transaction.value(CONNECTION.last_entry)
    upto: int = transaction.value(CONNECTION.fact, {"name": TRAIL_UPTO})
    return last - upto >= NOTED_ENTRIES


def note_trails(transaction: Transaction) -> None:
    last: int = transaction.value(CONNECTION.last_entry)
    transaction.run(SQL.note_trails)
    transaction.run(CONNECTION.set_fact, {"name": TRAIL_UPTO, "value": last})
