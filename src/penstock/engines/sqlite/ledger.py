"""The ledger: small facts that the pipeline keeps in the store and changes together, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/ledger.sql")


def entries(transaction: Transaction, kind: str, prefix: str) -> dict[str, str]:
    return dict(transaction.rows(SQL.entries, {"kind": kind, "prefix": prefix}))


def entry(transaction: Transaction, kind: str, key: str) -> str | None:
    value: str | None = transaction.value(SQL.entry, {"kind": kind, "key": key})
    return value


def record(
    transaction: Transaction,
    kind: str,
    puts: Mapping[str, str],
    removes: Sequence[str],
    expect: Mapping[str, str | None],
) -> bool:
    if any(entry(transaction, kind, key) != value for key, value in expect.items()):
        return False
    transaction.run_many(SQL.remove, [(kind, key) for key in removes])
    transaction.run_many(SQL.put, [(kind, key, value) for key, value in puts.items()])
    return True
