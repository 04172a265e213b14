"""The health of a store: version, durability, integrity, stuck things, and what to do about each."""

from __future__ import annotations

import os
from collections.abc import Iterator

import apsw

from penstock.domain.names import shown
from penstock.domain.observations import Check
from penstock.engines.sqlite import migration
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.connection import Database
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/doctor.sql")
LARGE_JOURNAL_BYTES = 256 << 20


def examine(database: Database) -> list[Check]:
    with database.read() as transaction:
        checks = [*_versions(transaction), *_file(database)]
        checks += [*_integrity(transaction), *_stuck(transaction)]
    with database.write() as transaction:
        return [*_durability(database, transaction), *checks]


def _versions(transaction: Transaction) -> Iterator[Check]:
    yield Check("sqlite", "ok", f"SQLite {apsw.sqlite_lib_version()}, apsw {apsw.apsw_version()}")
    version = transaction.value(CONNECTION.fact, {"name": "schema_version"})
    yield Check("schema", "ok", f"schema {version} of {len(migration.steps())}")


def _durability(database: Database, transaction: Transaction) -> Iterator[Check]:
    mode = transaction.value(SQL.journal_mode)
    level = transaction.value(CONNECTION.synchronous)
    if database.in_memory:
        yield Check("durability", "warning", "the store is in memory: it is gone when the process ends", "use a file")
    elif mode != "wal" or level != 2:
        advice = "another program changed the journal mode: set it to wal again, and do not open the file with it"
        yield Check("durability", "error", f"journal mode {mode}, synchronous {level}: commits may be lost", advice)
    else:
        yield Check("durability", "ok", "write-ahead log, synchronous full: a commit is on the disk when it returns")


def _file(database: Database) -> Iterator[Check]:
    if database.in_memory:
        return
    mode = os.stat(database.path).st_mode & 0o777
    if mode & 0o077:
        yield Check(
            "file", "warning", f"{database.path} can be read by others (mode {mode:o})", f"chmod 600 {database.path}"
        )
    else:
        yield Check("file", "ok", f"{database.path}, {os.path.getsize(database.path):,} bytes, private to its owner")
    journal = f"{database.path}-wal"
    size = os.path.getsize(journal) if os.path.exists(journal) else 0
    if size > LARGE_JOURNAL_BYTES:
        advice = "a reader has been open for long: end it, and the log is copied back by the next commit"
        yield Check("journal", "warning", f"the write-ahead log has {size:,} bytes", advice)


def _integrity(transaction: Transaction) -> Iterator[Check]:
    finding = transaction.value(CONNECTION.quick_check)
    if finding == "ok":
        yield Check("integrity", "ok", "no damage found")
    else:
        advice = "stop writing, keep a copy, and restore a backup or use sqlite3 .recover"
        yield Check("integrity", "error", f"damaged: {finding}", advice)
    free, pages = transaction.value(CONNECTION.free_pages), transaction.value(CONNECTION.all_pages)
    if pages > 10_000 and free > pages // 2:
        yield Check(
            "space", "warning", f"{free:,} of {pages:,} pages are unused", "sqlite3 FILE vacuum, at a quiet time"
        )


def _stuck(transaction: Transaction) -> Iterator[Check]:
    now = {"now": transaction.now}
    found = False
    for queue, group, count in transaction.rows(SQL.stuck_leases, now):
        found = True
        finding = f"{count} leases of group {shown(group)} in queue {shown(queue)} ended and were not reclaimed"
        yield Check("leases", "warning", finding, "penstock sweep, or run a worker: nobody sweeps or receives")
    for queue, count in transaction.rows(SQL.late_held, now):
        found = True
        yield Check("held", "warning", f"{count} messages of queue {shown(queue)} are due and wait", "penstock sweep")
    for (name,) in transaction.rows(SQL.late_schedules, now):
        found = True
        yield Check("schedules", "warning", f"schedule {shown(name)} missed its tick", "penstock sweep: nobody sweeps")
    for queue, batch in transaction.rows(SQL.open_batches, now):
        found = True
        finding = f"batch {shown(batch)} of queue {shown(queue)} was never started"
        yield Check("batches", "warning", finding, f"penstock batch start {queue} {batch}, or cancel it")
    for queue, group in transaction.rows(SQL.silent_groups, now):
        found = True
        finding = f"group {shown(group)} of queue {shown(queue)} has unread messages and was not used for an hour"
        yield Check("groups", "warning", finding, f"penstock receive {queue} --group {group}")
    for queue, reason in transaction.rows(SQL.carried_groups, now):
        found = True
        finding = f"queue {shown(queue)}: {shown(reason, 200)}"
        yield Check("groups", "warning", finding, "raise group_idle_seconds, or remove what no longer reads")
    for (name,) in transaction.rows(SQL.paused_queues):
        found = True
        yield Check("paused", "warning", f"queue {shown(name)} is paused", f"penstock resume {name}")
    if not found:
        yield Check("flow", "ok", "nothing is stuck")
    dead = transaction.value(SQL.dead_letter_count)
    if dead:
        yield Check(
            "dead letters", "warning", f"{dead} dead letters", "penstock dead QUEUE, then redrive or purge them"
        )
