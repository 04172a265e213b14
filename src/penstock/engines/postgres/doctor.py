"""Health checks of a store: version, durability, stuck transactions and messages, each with advice."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.domain.results import Check, GroupStats, QueueInfo
from penstock.engines import flaws, health
from penstock.engines.postgres import migration, repair
from penstock.engines.postgres.connection import SQL as CONNECTION
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/doctor.sql")
LONG_TRANSACTION_SECONDS = 300


def examine(database: Database, queues: Iterable[tuple[QueueInfo, dict[str, GroupStats]]]) -> list[Check]:
    return [
        *_versions(database),
        *_durability(database),
        *_schemas(database),
        *_transactions(database),
        *flaws.checks(repair.find(database)),
        *health.flow(lambda name: database.rows(getattr(SQL, name)), queues),
    ]


def _versions(database: Database) -> Iterator[Check]:
    yield Check("postgres", "ok", f"PostgreSQL {database.value(SQL.server_version)}")
    facts = database.row(CONNECTION.facts)
    assert facts is not None
    if facts[1] == migration.digest():
        yield Check("schema", "ok", f"schema {facts[0]} of {len(migration.steps())}")
    else:
        finding = "the functions in the database are not those of this version"
        yield Check("schema", "warning", finding, "penstock migrate")


def _durability(database: Database) -> Iterator[Check]:
    off = [name for name, value in database.rows(SQL.durability) if value == "off"]
    if off:
        finding = f"{', '.join(off)} off: a commit may be lost by a power cut"
        yield Check("durability", "warning", finding, "set them on in postgresql.conf")
    else:
        yield Check("durability", "ok", "fsync and synchronous_commit on: a commit is on the disk when it returns")


def _schemas(database: Database) -> Iterator[Check]:
    for name, reason in database.rows(SQL.foreign_schemas):
        advice = "drop it, or give it back to the owner of the schema penstock; then penstock migrate"
        yield Check("schemas", "warning", f"schema {name} was made by Penstock, but is not its own: {reason}", advice)


def _transactions(database: Database) -> Iterator[Check]:
    for pid, seconds in database.rows(SQL.long_transactions, (LONG_TRANSACTION_SECONDS,)):
        finding = f"a transaction of process {pid} has been open for {seconds:.0f} s: nothing can be trimmed meanwhile"
        yield Check("transactions", "warning", finding, f"end it; select pg_terminate_backend({pid}) as a last resort")
    for name, seconds in database.rows(SQL.long_prepared_writes, (LONG_TRANSACTION_SECONDS,)):
        finding = f"the prepared transaction {name!r} has waited for {seconds:.0f} s: nothing can be trimmed meanwhile"
        advice = "run the write again that it belongs to; a sweep drops those of a sink after a day"
        yield Check("transactions", "warning", finding, advice)
