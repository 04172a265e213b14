"""The ledger: small facts of the pipeline and the servers, changed together by compare-and-set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.engines.positional.database import Transaction


def entries(transaction: Transaction, kind: str, prefix: str) -> dict[str, str]:
    return dict(transaction.rows("ledger_entries", {"kind": kind, "prefix": prefix}))


def entry(transaction: Transaction, kind: str, key: str) -> str | None:
    value: str | None = transaction.value("ledger_entry", {"kind": kind, "key": key})
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
    transaction.run_many("remove_ledger_entry", [(kind, key) for key in removes])
    transaction.run_many("put_ledger_entry", [(kind, key, value) for key, value in puts.items()])
    return True
