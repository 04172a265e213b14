"""Migrations: each file of `migrations/` is one step, and the store records how many were applied."""

from __future__ import annotations

import secrets
from importlib.resources import files

from penstock.domain.errors import SchemaTooNew
from penstock.domain.identity import SALT_BITS
from penstock.engines.sqlite.connection import SqliteDatabase
from penstock.engines.sqlite.transaction import SqliteTransaction


def steps() -> list[tuple[str, str]]:
    """The name and the SQL of each migration, in order."""
    folder = files("penstock.engines.sqlite").joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(name.removesuffix(".sql"), folder.joinpath(name).read_text(encoding="utf-8")) for name in names]


def migrate(database: SqliteDatabase) -> list[str]:
    """Apply the missing steps in one transaction; refuse a store of a newer Penstock."""
    known = steps()
    with database.read() as transaction:
        version = _version(transaction)
    if version < len(known):
        with database.write() as transaction:
            version = _version(transaction)
            for name, sql in known[version:]:
                transaction.run_script(sql)
                _begin(transaction, int(name.partition("_")[0]))
    if version > len(known):
        raise SchemaTooNew(
            f"{database.path} has schema {version}, this Penstock knows up to {len(known)}: install a newer Penstock"
        )
    with database.read() as transaction:
        database.salt = transaction.value("fact", {"name": "salt"})
    return [name for name, _ in known[version:]]


def _version(transaction: SqliteTransaction) -> int:
    if not transaction.value("has_schema"):
        return 0
    version: int = transaction.value("fact", {"name": "schema_version"}) or 0
    return version


def _begin(transaction: SqliteTransaction, version: int) -> None:
    if version == 1:
        for name, value in (
            ("salt", secrets.randbits(SALT_BITS)),
            ("epoch", secrets.randbits(62)),
            ("last_position", 0),
        ):
            transaction.run("set_fact", {"name": name, "value": value})
    transaction.run("set_fact", {"name": "schema_version", "value": version})
