"""Marks of a queue (`marked_rows`). For a row that was removed, what was recorded at its removal is compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain import refusals
from penstock.engines.contract import Table
from penstock.engines.marked_rows import BEGINNING, MarkedRow, kind_of
from penstock.engines.positional.database import Transaction

if TYPE_CHECKING:
    from penstock.engines.positional.queues import StoredQueue

# The end of each queue's audit is recorded again after this many entries.
NOTED_ENTRIES = 10_000
TRAIL_UPTO = "trail_upto"


def last_row(transaction: Transaction, queue: StoredQueue, table: Table, upto: int) -> MarkedRow:
    """The last row of the queue up to a number, even if it was removed."""
    statement = "last_message_upto" if table == "messages" else "last_entry_upto"
    row = transaction.row(statement, {"queue_id": queue.queue_id, "upto": upto})
    return BEGINNING if row is None else MarkedRow(*row)


def at_number(transaction: Transaction, queue: StoredQueue, table: Table, number: int) -> MarkedRow:
    """The mark after a row known by its number; without a time when the queue has no such row."""
    times = _times(transaction, queue, table, number)
    return MarkedRow(number, times[0] if times else None)


def trimmed(transaction: Transaction, queue: StoredQueue, table: Table) -> MarkedRow:
    """The last row that was trimmed; the rest starts after it."""
    row = transaction.row("trimmed_mark", {"queue_id": queue.queue_id, "kind": kind_of(table)})
    return BEGINNING if row is None else MarkedRow(*row)


def check(transaction: Transaction, queue: StoredQueue, table: Table, place: MarkedRow) -> None:
    """Refuse a mark of another log. A mark whose row was trimmed with later rows is left to the caller."""
    last: int = transaction.value(
        "last_position" if table == "messages" else "last_entry", {"queue_id": queue.queue_id}
    )
    if place.number > last:
        raise refusals.mark_beyond_log(queue.name, table, place.mark, last)
    if place.at is None:
        return
    times = _times(transaction, queue, table, place.number)
    if place.at not in times and (times or place.number >= trimmed(transaction, queue, table).number):
        raise refusals.mark_diverged(queue.name, table, place.mark)


def _times(transaction: Transaction, queue: StoredQueue, table: Table, number: int) -> list[int]:
    statement = "message_times" if table == "messages" else "entry_times"
    return [at for (at,) in transaction.rows(statement, {"queue_id": queue.queue_id, "number": number})]


def keep_last(transaction: Transaction, queue: StoredQueue, upto: int) -> None:
    """Record the last message up to a position; called before these are trimmed."""
    place = last_row(transaction, queue, "messages", upto)
    if place.at is not None:
        bindings = {"queue_id": queue.queue_id, "kind": "messages", "number": place.number, "at": place.at}
        transaction.run("set_trimmed_mark", bindings)


def keep_last_entry(transaction: Transaction, queue: StoredQueue) -> None:
    """Record the last audit entry; called before the whole audit of the queue is removed."""
    last = transaction.value("last_entry", {"queue_id": queue.queue_id})
    place = last_row(transaction, queue, "audit", last)
    if place.at is not None:
        bindings = {"queue_id": queue.queue_id, "kind": "audit", "number": place.number, "at": place.at}
        transaction.run("set_trimmed_mark", bindings)


def is_behind(transaction: Transaction) -> bool:
    """Whether enough entries were written that the ends should be recorded again."""
    last: int = transaction.value("last_entry", {"queue_id": None})
    upto: int = transaction.value("fact", {"name": TRAIL_UPTO})
    return last - upto >= NOTED_ENTRIES


def note_audit_ends(transaction: Transaction) -> None:
    last: int = transaction.value("last_entry", {"queue_id": None})
    transaction.run("note_audit_ends")
    transaction.run("set_fact", {"name": TRAIL_UPTO, "value": last})
