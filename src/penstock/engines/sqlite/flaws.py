"""What earlier versions left behind in a file: numbers that would be given out again, trails that begin too late,
batches that nobody starts."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from penstock.domain.names import shown
from penstock.domain.observations import Repair
from penstock.engines import flaws
from penstock.engines.flaws import Choices, Flaw
from penstock.engines.sqlite import batching, marks
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.connection import Database
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/flaws.sql")


def repair(database: Database, dry_run: bool, choices: Choices) -> list[Repair]:
    """All in one transaction: a repair that fails has done nothing."""
    with database.write() as transaction:
        return flaws.repaired(find(transaction, choices), dry_run)


def find(transaction: Transaction, choices: Choices = flaws.NOTHING_CHOSEN) -> list[Flaw]:
    return [*_numbers(transaction), *_trails(transaction), *_batches(transaction, choices)]


def _numbers(transaction: Transaction) -> Iterator[Flaw]:
    """Somebody has read up to a number that is beyond the last one given out: he would miss the next ones."""
    for kind, fact, last in (
        ("position", "last_position", transaction.value(CONNECTION.last_position)),
        ("entry", "last_entry", transaction.value(CONNECTION.last_entry)),
    ):
        read = max(_read_upto(transaction, kind), default=0)
        if read > last:
            finding = (
                f"readers have come to {kind} {read}, and the last one given out is {last}: they would miss what gets "
                "the numbers between"
            )
            action = f"numbers go on after {kind} {read}"
            raise_to = partial(transaction.run, CONNECTION.set_fact, {"name": fact, "value": read})
            yield Flaw("numbers", "error", finding, action, raise_to)


def _read_upto(transaction: Transaction, kind: str) -> Iterator[int]:
    """Where groups, lakes and the beginnings of queues stand."""
    for (number,) in transaction.rows(SQL.reached_positions if kind == "position" else SQL.reached_entries):
        yield number
    for (text,) in transaction.rows(SQL.lake_marks):
        mark = msgspec.json.decode(text).get("messages" if kind == "position" else "audit", 0)
        yield marks.parse(mark).number


def _trails(transaction: Transaction) -> Iterator[Flaw]:
    """The start of a trail that a removal moved: nothing of the queue was ever trimmed. Where something was, it cannot
    be known any more how far back the trail is whole."""
    for queue_id, name, number in transaction.rows(SQL.late_trails):
        finding = (
            f"the trail of queue {shown(name)} begins after entry {number}, though nothing of it is past retention: a "
            "message was removed"
        )
        action = f"the trail of queue {shown(name)} begins where it did before"
        yield Flaw("trail", "warning", finding, action, partial(_restore_trail, transaction, queue_id))


def _restore_trail(transaction: Transaction, queue_id: int) -> None:
    queue = {"queue_id": queue_id}
    for first, last in transaction.rows(SQL.holed_entries, queue):
        there = {position for (position,) in transaction.rows(SQL.positions, {"first": first, "last": last})}
        for position in range(first, last + 1):
            if position not in there:
                transaction.run(SQL.note_removed, {**queue, "position": position})
    transaction.run(SQL.restore_trail, queue)


def _batches(transaction: Transaction, choices: Choices) -> Iterator[Flaw]:
    idle = {"before": transaction.now - flaws.STRANDED_SECONDS * 1_000_000}
    end = batching.start if choices.batches == "start" else batching.cancel
    for queue, batch, count in transaction.rows(SQL.stranded_batches, idle):
        yield flaws.stranded(queue, batch, count, choices.batches, partial(end, transaction, queue, batch, None))
