"""The health of a store: version, durability, stuck things, and what to do about each."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.domain.names import shown
from penstock.domain.observations import Check
from penstock.engines.postgres import migration
from penstock.engines.postgres.connection import SQL as CONNECTION
from penstock.engines.postgres.connection import Database
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.postgres", "sql/doctor.sql")
LONG_TRANSACTION_SECONDS = 300


def examine(database: Database) -> list[Check]:
    return [*_versions(database), *_durability(database), *_transactions(database), *_stuck(database)]


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


def _transactions(database: Database) -> Iterator[Check]:
    for pid, seconds in database.rows(SQL.long_transactions, (LONG_TRANSACTION_SECONDS,)):
        finding = f"a transaction of process {pid} has been open for {seconds:.0f} s: nothing can be trimmed meanwhile"
        yield Check("transactions", "warning", finding, f"end it; select pg_terminate_backend({pid}) as a last resort")


def _stuck(database: Database) -> Iterator[Check]:
    found = False
    for queue, group, count in database.rows(SQL.stuck_leases):
        found = True
        finding = f"{count} leases of group {shown(group)} in queue {shown(queue)} ended and were not reclaimed"
        yield Check("leases", "warning", finding, "penstock sweep, or run a worker: nobody sweeps or receives")
    for queue, count in database.rows(SQL.late_held):
        found = True
        yield Check("held", "warning", f"{count} messages of queue {shown(queue)} are due and wait", "penstock sweep")
    for (name,) in database.rows(SQL.late_schedules):
        found = True
        yield Check("schedules", "warning", f"schedule {shown(name)} missed its tick", "penstock sweep: nobody sweeps")
    for queue, batch in database.rows(SQL.open_batches):
        found = True
        finding = f"batch {shown(batch)} of queue {shown(queue)} was never started"
        yield Check("batches", "warning", finding, f"penstock batch start {queue} {batch}, or cancel it")
    for queue, group in database.rows(SQL.silent_groups):
        found = True
        finding = f"group {shown(group)} of queue {shown(queue)} has unread messages and was not used for an hour"
        yield Check("groups", "warning", finding, f"penstock receive {queue} --group {group}")
    for queue, reason in database.rows(SQL.carried_groups):
        found = True
        finding = f"queue {shown(queue)}: {shown(reason, 200)}"
        yield Check("groups", "warning", finding, "raise group_idle_seconds, or remove what no longer reads")
    for (name,) in database.rows(SQL.paused_queues):
        found = True
        yield Check("paused", "warning", f"queue {shown(name)} is paused", f"penstock resume {name}")
    if not found:
        yield Check("flow", "ok", "nothing is stuck")
    dead = database.value(SQL.dead_letter_count)
    if dead:
        yield Check(
            "dead letters", "warning", f"{dead} dead letters", "penstock dead QUEUE, then redrive or purge them"
        )
