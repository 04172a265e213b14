"""Migrations: each file of `migrations/` is one step, and the store records how many were applied."""

from __future__ import annotations

import re
import secrets
from importlib.resources import files

from penstock.domain.errors import SchemaTooNew
from penstock.domain.identity import SALT_BITS
from penstock.engines.mariadb.connection import MariadbDatabase
from penstock.engines.mariadb.literals import Block
from penstock.engines.mariadb.transaction import SQL, MariadbTransaction

# Collations that compare bytes, trailing spaces included.
MARIADB_COLLATION = "utf8mb4_nopad_bin"
MYSQL_COLLATION = "utf8mb4_0900_bin"
_TABLE_END = re.compile(r"^\);$", re.MULTILINE)
_COMMENT = re.compile(r"--[^\n]*")


def steps(collation: str) -> list[tuple[str, list[str]]]:
    """The name and the statements of each migration, in order."""
    folder = files("penstock.engines.mariadb").joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [
        (name.removesuffix(".sql"), _statements(folder.joinpath(name).read_text("utf-8"), collation)) for name in names
    ]


def _statements(text: str, collation: str) -> list[str]:
    plain = _COMMENT.sub("", text)
    tables = _TABLE_END.sub(f") engine = InnoDB default character set utf8mb4 collate {collation};", plain)
    return [statement.strip() for statement in tables.split(";\n") if statement.strip()]


def script() -> str:
    """Everything that `migrate` does to an empty MariaDB database, for people who run it themselves."""
    parts = [statement for _, statements in steps(MARIADB_COLLATION) for statement in statements]
    set_fact = Block(SQL.set_fact, locks=True)
    parts += [part for fact in _facts(len(steps(MARIADB_COLLATION))) for part in set_fact.render(fact)]
    return ";\n\n".join(parts) + ";\n"


def migrate(database: MariadbDatabase) -> list[str]:
    """Apply the missing steps; refuse a store of a newer Penstock. Statements that change tables commit by themselves,
    so a lock of the server keeps others out, and every statement of a step can be repeated."""
    with database.alone("penstock_migration") as transaction:
        version = current_version(transaction)
        known = steps(_collation(transaction))
        if version > len(known):
            raise SchemaTooNew(
                f"{database.name} has schema {version}, and this Penstock knows {len(known)}: install a newer Penstock"
            )
        for number, (_, statements) in enumerate(known[version:], version + 1):
            for statement in statements:
                transaction.run_text(statement)
            if number == 1:
                for fact in _facts(0):
                    transaction.run("add_fact", fact)
            transaction.run("set_fact", {"name": "schema_version", "value": number})
            transaction.flush()
    return [name for name, _ in known[version:]]


def current_version(transaction: MariadbTransaction) -> int:
    """How many steps were applied; 0 for a database without a store."""
    if not transaction.value("has_schema"):
        return 0
    version: int | None = transaction.value("fact", {"name": "schema_version"})
    return version or 0


def _collation(transaction: MariadbTransaction) -> str:
    version: str = transaction.rows("server")[0][0]
    return MARIADB_COLLATION if "mariadb" in version.lower() else MYSQL_COLLATION


def _facts(version: int) -> list[dict[str, str | int]]:
    facts = {
        "salt": secrets.randbits(SALT_BITS), "epoch": secrets.randbits(62), "ledger": 0, "trail_upto": 0,
        "schema_version": version,
    }  # fmt: skip
    return [{"name": name, "value": value} for name, value in facts.items()]
