"""Health checks of a store: version, durability, settings and stalled work, each with advice."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.domain.limits import MEBIBYTE
from penstock.domain.results import Check
from penstock.engines.mariadb import migration
from penstock.engines.mariadb.connection import MariadbDatabase
from penstock.engines.mariadb.transaction import MariadbTransaction
from penstock.engines.positional import health

# Payloads are sent as two bytes each, and a queue takes payloads of 16 MiB by default.
ENOUGH_PACKET = 34 * MEBIBYTE


def examine(database: MariadbDatabase) -> list[Check]:
    with database.read() as transaction:
        return [*_server(transaction), *_tables(transaction), *health.checks(transaction)]


def _server(transaction: MariadbTransaction) -> Iterator[Check]:
    version, database, packet, flush, read_only, _ = transaction.rows("server")[0]
    yield Check("server", "ok", f"{version}, database {database}")
    schema = migration.current_version(transaction)
    yield Check("schema", "ok", f"schema {schema} of {len(migration.steps(''))}")
    if flush == 1:
        yield Check("durability", "ok", "innodb_flush_log_at_trx_commit is 1: a commit is on the disk when it returns")
    else:
        finding = f"innodb_flush_log_at_trx_commit is {flush}: a crash of the machine can lose commits"
        yield Check("durability", "warning", finding, "set innodb_flush_log_at_trx_commit = 1 on the server")
    if packet < ENOUGH_PACKET:
        finding = f"max_allowed_packet is {packet:,} bytes: payloads of more than {packet // 2:,} bytes are refused"
        yield Check("packet", "warning", finding, f"set max_allowed_packet = {2 * ENOUGH_PACKET // MEBIBYTE}M")
    if read_only:
        yield Check("read_only", "error", "the server is read-only", "connect to the primary server")


def _tables(transaction: MariadbTransaction) -> Iterator[Check]:
    for table, engine in transaction.rows("tables_of_other_engines"):
        finding = f"table {table} uses the storage engine {engine}, which has no transactions"
        yield Check("tables", "error", finding, f"convert it: engine = InnoDB for table {table}")
