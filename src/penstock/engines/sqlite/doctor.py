"""Health checks of a store: version, durability, integrity and stalled work, each with advice."""

from __future__ import annotations

import os
from collections.abc import Iterator

import apsw

from penstock.domain.results import Check
from penstock.engines.positional import health
from penstock.engines.sqlite import migration
from penstock.engines.sqlite.connection import SqliteDatabase
from penstock.engines.sqlite.transaction import SqliteTransaction

LARGE_JOURNAL_BYTES = 256 << 20


def examine(database: SqliteDatabase) -> list[Check]:
    if database.is_removed():
        advice = "stop what uses the store, restore a backup, and open it again"
        return [
            Check(
                "file", "error", f"{database.path} was removed while it was open: nothing is written any more", advice
            )
        ]
    with database.read() as transaction:
        checks = [*_versions(transaction), *_file(database)]
        checks += [*_integrity(transaction), *health.checks(transaction)]
    with database.write() as transaction:
        return [*_durability(database, transaction), *checks]


def _versions(transaction: SqliteTransaction) -> Iterator[Check]:
    yield Check("sqlite", "ok", f"SQLite {apsw.sqlite_lib_version()}, apsw {apsw.apsw_version()}")
    version = transaction.value("fact", {"name": "schema_version"})
    yield Check("schema", "ok", f"schema {version} of {len(migration.steps())}")


def _durability(database: SqliteDatabase, transaction: SqliteTransaction) -> Iterator[Check]:
    mode = transaction.value("journal_mode")
    level = transaction.value("synchronous")
    if database.in_memory:
        yield Check("durability", "warning", "the store is in memory: it is gone when the process ends", "use a file")
    elif mode != "wal" or level != 2:
        advice = "another program changed the journal mode: set it to wal again, and do not open the file with it"
        yield Check("durability", "error", f"journal mode {mode}, synchronous {level}: commits may be lost", advice)
    else:
        yield Check("durability", "ok", "write-ahead log, synchronous full: a commit is on the disk when it returns")


def _file(database: SqliteDatabase) -> Iterator[Check]:
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


def _integrity(transaction: SqliteTransaction) -> Iterator[Check]:
    finding = transaction.value("quick_check")
    if finding == "ok":
        yield Check("integrity", "ok", "no damage found")
    else:
        advice = "stop writing, keep a copy, and restore a backup or use sqlite3 .recover"
        yield Check("integrity", "error", f"damaged: {finding}", advice)
    free, pages = transaction.value("free_pages"), transaction.value("all_pages")
    if pages > 10_000 and free > pages // 2:
        yield Check(
            "space", "warning", f"{free:,} of {pages:,} pages are unused", "sqlite3 FILE vacuum, at a quiet time"
        )
