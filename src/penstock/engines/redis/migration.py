"""The functions on the servers: loading them, and refusing those of a newer version."""

from __future__ import annotations

import re
from typing import Any

from penstock.domain.errors import EngineTooOld, StoreReadOnly
from penstock.engines.redis import library
from penstock.engines.redis.connection import LIBRARY_ERRORS, RedisDatabase, pairs_of, text_of

_VERSION = re.compile(r"^local VERSION = (\d+)$", re.MULTILINE)
OLDEST = (7, 0)


def migrate(database: RedisDatabase) -> list[str]:
    """Load the functions of this version into every server that has not got them. A newer version on one of them is
    refused before any is changed."""
    for version, product in server_versions(database):
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise EngineTooOld(f"{database.name} runs {product} {version}: Penstock needs Redis 7.0 or Valkey 8")
    loaded = _loaded(database)
    for source in loaded.values():
        found = _VERSION.search(source)
        if found is not None and int(found.group(1)) > library.VERSION:
            raise library.too_new(database.name, int(found.group(1)))
    lacking = [node for node, source in loaded.items() if source != library.source()]
    for node in lacking:
        _load(database, node)
    return [f"functions of version {library.VERSION}"] if lacking else []


def spread(database: RedisDatabase) -> bool:
    """Load the functions into nodes without any, if another node has those of this version: a node may have joined
    the cluster after the migration."""
    loaded = _loaded(database)
    if library.source() not in loaded.values():
        return False
    for node in [node for node, source in loaded.items() if not source]:
        _load(database, node)
    return True


def is_current(database: RedisDatabase) -> bool:
    return all(source == library.source() for source in _loaded(database).values())


def server_versions(database: RedisDatabase) -> list[tuple[str, str]]:
    """For each server the version that counts for compatibility, and the name of the product."""
    return [_version(info) for _, info in database.each("INFO", "server")]


def _version(info: dict[str, Any]) -> tuple[str, str]:
    own = info.get("valkey_version")
    if own is not None:
        return str(own), "Valkey"
    return str(info.get("redis_version", "0")), "Redis"


def settings(database: RedisDatabase, pattern: str) -> list[dict[str, str]] | None:
    """Settings of each server by name; None where the user may not read them."""
    try:
        found = database.each("CONFIG", "GET", pattern)
    except StoreReadOnly:
        return None
    return [{text_of(name): text_of(value) for name, value in pairs_of(one)} for _, one in found]


def _loaded(database: RedisDatabase) -> dict[str, str]:
    """The source of the loaded library by server, or nothing."""
    replies = database.each("FUNCTION", "LIST", "LIBRARYNAME", library.NAME, "WITHCODE")
    return {node: _source(found) for node, found in replies}


def _source(found: list[Any]) -> str:
    if not found:
        return ""
    fields = {text_of(name): value for name, value in pairs_of(found[0])}
    return text_of(fields.get("library_code", b""))


def _load(database: RedisDatabase, node: str) -> None:
    try:
        database.nodes.load(node, library.source())
    except LIBRARY_ERRORS as error:
        raise database.translated(error) from error
