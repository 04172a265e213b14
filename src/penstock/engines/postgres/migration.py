"""Schema versions: numbered migrations of the tables, and all functions again whenever one of them has changed."""

from __future__ import annotations

import hashlib
import secrets
from importlib.resources import files

from penstock.domain.errors import EngineTooOld, SchemaMissing, SchemaTooNew, StoreError, StoreReadOnly
from penstock.domain.identity import SALT_BITS
from penstock.engines.postgres.connection import SQL, Database
from penstock.engines.postgres.errors import MIGRATE
from penstock.engines.statements import Statements

PACKAGE = "penstock.engines.postgres"
STEPS = Statements(PACKAGE, "sql/migration.sql")
OLDEST_SERVER = 150_000


def steps() -> list[tuple[str, str]]:
    """The name and the SQL of each migration, in order."""
    folder = files(PACKAGE).joinpath("migrations")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".sql"))
    return [(name.removesuffix(".sql"), folder.joinpath(name).read_text(encoding="utf-8")) for name in names]


def functions() -> list[tuple[str, str]]:
    """The files of functions and views, in the order of load_order.txt."""
    folder = files(PACKAGE)
    names = folder.joinpath("load_order.txt").read_text(encoding="utf-8").split()
    return [(name, folder.joinpath(f"{name}.sql").read_text(encoding="utf-8")) for name in names]


def script() -> str:
    """Everything that `migrate` would do to an empty database, for people who run it themselves."""
    parts = [STEPS.prepare + ";", STEPS.refuse_intruders + ";", *(sql for _, sql in steps())]
    parts.append(_begun())
    parts += [sql for _, sql in functions()]
    parts.append(STEPS.set_digest.replace("%s", _quoted(digest())) + ";")
    whole = [SQL.begin + ";", *(part.strip() for part in parts), SQL.commit + ";"]
    return "\n\n".join(whole) + "\n"


def _begun() -> str:
    values = (len(steps()), secrets.randbits(SALT_BITS), secrets.randbits(62))
    statement = STEPS.begin_store
    for value in values:
        statement = statement.replace("%s", str(value), 1)
    return statement + ";"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def digest() -> str:
    return hashlib.sha256("\0".join(sql for _, sql in functions()).encode()).hexdigest()[:16]


def migrate(database: Database) -> list[str]:
    """Take the steps that are missing, in one transaction; a store of a newer Penstock is refused."""
    check_server(database)
    taken: list[str] = []
    with database.transaction():
        database.script(STEPS.prepare)
        # Two who migrate at once take turns.
        database.rows(STEPS.lock)
        _check_owner(database)
        version, found_digest = _found(database)
        known = steps()
        if version > len(known):
            raise SchemaTooNew(_too_new(database, version))
        for name, sql in known[version:]:
            database.script(sql)
            taken.append(name)
        if version == 0:
            database.rows(STEPS.begin_store, (len(known), secrets.randbits(SALT_BITS), secrets.randbits(62)))
        elif taken:
            database.rows(STEPS.set_version, (len(known),))
        if found_digest != digest():
            database.script(STEPS.drop_functions)
            for name, sql in functions():
                database.script(sql)
                taken.append(name)
            database.rows(STEPS.set_digest, (digest(),))
        elif database.value(STEPS.bind_schemas):
            taken.append("bind_schemas")
        if database.value(STEPS.rebase):
            taken.append("rebase")
    return taken


def _check_owner(database: Database) -> None:
    """Whoever can write to the schema could have functions run with the rights of the one who migrates."""
    for (reason,) in database.rows(STEPS.intruders):
        raise StoreError(
            f"{database.name}: {reason}: nothing was changed. Migrate as the role that owns the schema, "
            "and let no other create objects in it (revoke create on schema penstock from ...)"
        )


def _found(database: Database) -> tuple[int, str]:
    if not database.value(SQL.has_schema):
        return 0, ""
    facts = database.row(SQL.facts)
    return (0, "") if facts is None else (facts[0], facts[1])


def check_server(database: Database) -> None:
    row = database.row(SQL.server_version)
    assert row is not None
    version, is_standby = row
    if version < OLDEST_SERVER:
        raise EngineTooOld(f"{database.name} is PostgreSQL {version // 10_000}: Penstock needs 15 or newer")
    if is_standby:
        raise StoreReadOnly(f"{database.name} is a standby, which takes no writes: connect to the primary server")


def check_schema(database: Database) -> tuple[int, int]:
    """The salt and the epoch of a store that this Penstock can use."""
    if not database.value(SQL.has_schema):
        raise SchemaMissing(f"{database.name} has no Penstock schema: {MIGRATE}")
    facts = database.row(SQL.facts)
    if facts is None:
        raise SchemaMissing(f"{database.name} has an unfinished Penstock schema: {MIGRATE}")
    version, _, salt, epoch, is_own = facts
    if version > len(steps()):
        raise SchemaTooNew(_too_new(database, version))
    if version < len(steps()):
        raise SchemaMissing(f"{database.name} has Penstock schema {version} of {len(steps())}: {MIGRATE}")
    if not is_own:
        raise SchemaMissing(
            f"{database.name} was restored from another server, whose transaction numbers differ: {MIGRATE}"
        )
    return salt, epoch


def _too_new(database: Database, version: int) -> str:
    return f"{database.name} has schema {version}, this Penstock knows up to {len(steps())}: install a newer Penstock"
