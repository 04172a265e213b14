"""Faults left in a database: sequences that would repeat numbers, locks that a cancelled call kept, messages that
cursors passed by mistake, batches that nobody starts. Transaction numbers of another server are refused when the store
is opened, and replaced by a migration."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from penstock.domain.results import Repair
from penstock.domain.validation import shown
from penstock.engines import flaws
from penstock.engines.flaws import Choices, Flaw
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/repair.sql")


def repair(database: Database, dry_run: bool, choices: Choices) -> list[Repair]:
    """Each repair is a transaction of its own, so that it stays when a later one fails."""
    return flaws.repaired(find(database, choices), dry_run)


def find(database: Database, choices: Choices = flaws.NOTHING_CHOSEN) -> list[Flaw]:
    return [
        *_sequences(database),
        *_locks(database, choices),
        *_lost(database),
        *_lost_entries(database),
        *_batches(database, choices),
    ]


def _sequences(database: Database) -> Iterator[Flaw]:
    """For example after a failover to a logical replica, which has the rows but not the sequences."""
    for kind, used, given in database.rows(SQL.late_sequences):
        finding = f"{kind} {used} is in use, and the last one given out is {given}: numbers would be used twice"
        mend = partial(database.rows, SQL.raise_sequence, (kind, used))
        yield Flaw("numbers", "error", finding, f"numbers go on after {kind} {used}", mend)


def _locks(database: Database, choices: Choices) -> Iterator[Flaw]:
    for pid, seconds in database.rows(SQL.leaked_locks):
        finding = (
            f"the session of process {pid}, idle for {seconds:.0f} s, keeps a lock that a cancelled send left behind: "
            "nobody can begin to listen"
        )
        advice = f"penstock repair --terminate, or close that session: select pg_terminate_backend({pid})"
        mend = partial(database.rows, SQL.terminate, (pid,)) if choices.terminate else None
        yield Flaw("locks", "error", finding, f"ended the session of process {pid}", mend, advice)


def _lost(database: Database) -> Iterator[Flaw]:
    for queue, group, count in database.rows(SQL.lost_messages):
        finding = (
            f"{count} messages of queue {shown(queue)} were passed by group {shown(group)} without being handed out: "
            "it would never receive them"
        )
        action = f"{count} messages of queue {shown(queue)} are ready in group {shown(group)}"
        yield Flaw("lost messages", "error", finding, action, partial(database.rows, SQL.recover_lost, (queue, group)))


def _lost_entries(database: Database) -> Iterator[Flaw]:
    """They may have been processed, so that to deliver them again is a decision."""
    for queue, group, count in database.rows(SQL.lost_entries):
        finding = (
            f"{count} messages of queue {shown(queue)} were passed by group {shown(group)}, and the entries that say "
            "how are gone: an earlier version deleted them too early"
        )
        advice = "nothing if they were processed; otherwise penstock seek, which delivers them again"
        yield Flaw("lost entries", "warning", finding, "", None, advice)


def _batches(database: Database, choices: Choices) -> Iterator[Flaw]:
    end = SQL.batch_start if choices.batches == "start" else SQL.batch_cancel
    for queue, batch, count in database.rows(SQL.stranded_batches, (flaws.STRANDED_SECONDS,)):
        yield flaws.stranded(queue, batch, count, choices.batches, partial(database.rows, end, (queue, batch)))
