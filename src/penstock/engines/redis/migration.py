"""The functions on the server: loading them, and refusing those of a newer version."""

from __future__ import annotations

import re
from typing import Any

from penstock.domain.errors import EngineTooOld, SchemaTooNew, StoreReadOnly
from penstock.engines.redis import library
from penstock.engines.redis.connection import RedisDatabase, pairs_of, text_of

_VERSION = re.compile(r"^local VERSION = (\d+)$", re.MULTILINE)
OLDEST = (7, 0)


def migrate(database: RedisDatabase) -> list[str]:
    """Load the functions of this version, unless they are there."""
    version, product = server_version(database)
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
        raise EngineTooOld(f"{database.name} runs {product} {version}: Penstock needs Redis 7.0 or Valkey 8")
    loaded = _loaded(database)
    if loaded == library.source():
        return []
    found = _VERSION.search(loaded)
    if found is not None and int(found.group(1)) > library.VERSION:
        raise SchemaTooNew(
            f"{database.name} has functions of version {found.group(1)}: this Penstock knows version {library.VERSION}"
        )
    database.command("FUNCTION", "LOAD", "REPLACE", library.source())
    return [f"functions of version {library.VERSION}"]


def is_current(database: RedisDatabase) -> bool:
    return _loaded(database) == library.source()


def server_version(database: RedisDatabase) -> tuple[str, str]:
    """The version that counts for compatibility, and the name of the product."""
    info: dict[str, Any] = database.command("INFO", "server")
    own = info.get("valkey_version")
    if own is not None:
        return str(own), "Valkey"
    return str(info.get("redis_version", "0")), "Redis"


def settings(database: RedisDatabase, pattern: str) -> dict[str, str] | None:
    """Settings of the server by name; None where the user may not read them."""
    try:
        found = database.command("CONFIG", "GET", pattern)
    except StoreReadOnly:
        return None
    return {text_of(name): text_of(value) for name, value in pairs_of(found)}


def _loaded(database: RedisDatabase) -> str:
    """The source of the loaded library, or nothing."""
    found = database.command("FUNCTION", "LIST", "LIBRARYNAME", library.NAME, "WITHCODE")
    if not found:
        return ""
    fields = {text_of(name): value for name, value in pairs_of(found[0])}
    return text_of(fields.get("library_code", b""))
