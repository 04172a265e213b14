"""Flaws that earlier versions left behind: numbers that would be given out again, audits that start too late, batches
that nobody started."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import msgspec

from penstock.domain.results import Repair
from penstock.domain.validation import shown
from penstock.engines import flaws, marked_rows
from penstock.engines.flaws import Choices, Flaw
from penstock.engines.positional import batch_lifecycle
from penstock.engines.positional.database import PositionalDatabase, Transaction


def repair(database: PositionalDatabase, dry_run: bool, choices: Choices) -> list[Repair]:
    """Repair everything in one transaction."""
    with database.write() as transaction:
        return flaws.repaired(find(transaction, choices), dry_run)


def find(transaction: Transaction, choices: Choices = flaws.NOTHING_CHOSEN) -> list[Flaw]:
    return [*_numbers(transaction), *_audits(transaction), *_batches(transaction, choices)]


def _numbers(transaction: Transaction) -> Iterator[Flaw]:
    """A reader has passed the last number given out, and would miss the next ones."""
    for kind, fact, last in (
        ("position", "last_position", transaction.value("last_position", {"queue_id": None})),
        ("entry", "last_entry", transaction.value("last_entry", {"queue_id": None})),
    ):
        read = max(_read_upto(transaction, kind), default=0)
        if read > last:
            finding = (
                f"readers have come to {kind} {read}, and the last one given out is {last}: they would miss what gets "
                "the numbers between"
            )
            action = f"numbers go on after {kind} {read}"
            raise_to = partial(transaction.run, "set_fact", {"name": fact, "value": read})
            yield Flaw("numbers", "error", finding, action, raise_to)


def _read_upto(transaction: Transaction, kind: str) -> Iterator[int]:
    """The numbers that groups, lakes and trimmed queues have reached."""
    for (number,) in transaction.rows("reached_positions" if kind == "position" else "reached_entries"):
        yield number
    for (text,) in transaction.rows("lake_marks"):
        mark = msgspec.json.decode(text).get("messages" if kind == "position" else "audit", 0)
        yield marked_rows.parse(mark).number


def _audits(transaction: Transaction) -> Iterator[Flaw]:
    """An audit whose start was moved by a removal, although nothing of the queue was ever trimmed. If something was
    trimmed, its true start is no longer known."""
    for queue_id, name, number in transaction.rows("late_audits"):
        finding = (
            f"the trail of queue {shown(name)} begins after entry {number}, though nothing of it is past retention: a "
            "message was removed"
        )
        action = f"the trail of queue {shown(name)} begins where it did before"
        yield Flaw("trail", "warning", finding, action, partial(_restore_audit_start, transaction, queue_id))


def _restore_audit_start(transaction: Transaction, queue_id: int) -> None:
    queue = {"queue_id": queue_id}
    for first, last in transaction.rows("incomplete_entries", queue):
        there = {position for (position,) in transaction.rows("positions_between", {"first": first, "last": last})}
        for position in range(first, last + 1):
            if position not in there:
                transaction.run("note_missing_message", {**queue, "position": position})
    transaction.run("restore_audit_start", queue)


def _batches(transaction: Transaction, choices: Choices) -> Iterator[Flaw]:
    idle = {"before": transaction.now - flaws.STRANDED_SECONDS * 1_000_000}
    end = batch_lifecycle.start if choices.batches == "start" else batch_lifecycle.cancel
    for queue, batch, count in transaction.rows("stranded_batches", idle):
        yield flaws.stranded(queue, batch, count, choices.batches, partial(end, transaction, queue, batch, None))
