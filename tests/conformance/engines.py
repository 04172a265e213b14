"""The engines under test. A new engine adds one row."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import penstock
from penstock.engines.contract import Capabilities


class EngineRow(NamedTuple):
    """`fresh_url` names an empty store of its own for each folder it is given; `any_url` one that need not be there.
    `settings` make a store at a URL quicker to open."""

    name: str
    fresh_url: Callable[[Path], str]
    any_url: str
    settings: Callable[[str], dict[str, Any]] = lambda url: {}


def _sqlite(folder: Path) -> str:
    from tests.engines.sqlite.template import fresh_store

    return fresh_store(folder)


def _postgres(folder: Path) -> str:
    from tests.engines.postgres.server import fresh_database

    return fresh_database(folder=folder)


def _mariadb(folder: Path) -> str:
    from tests.engines.mariadb.server import fresh_database

    return fresh_database(folder)


def _redis(folder: Path) -> str:
    from tests.engines.redis.server import fresh_store

    return fresh_store()


def _redis_cluster(folder: Path) -> str:
    from tests.engines.redis.cluster import fresh_cluster_store

    return fresh_cluster_store()


def _valkey(folder: Path) -> str:
    from tests.engines.redis.server import fresh_valkey_store

    return fresh_valkey_store()


def _warm(url: str) -> dict[str, Any]:
    """Reused connections."""
    from tests.engines.postgres.server import shared_pool

    return {"pool": shared_pool(url)}


ENGINES = (
    EngineRow("sqlite", _sqlite, "sqlite:///:memory:"),
    EngineRow("postgres", _postgres, "postgresql://nobody@localhost/none", _warm),
)
MARIADB = EngineRow("mariadb", _mariadb, "mysql://nobody@localhost/none")
REDIS = EngineRow("redis", _redis, "redis://localhost/0")
REDIS_CLUSTER = EngineRow("redis_cluster", _redis_cluster, "redis+cluster://localhost/")
# The other server that the Redis engine runs on: a part of the tests is run on it too.
VALKEY = EngineRow("valkey", _valkey, "redis://localhost/0")
# The contract is tested on every engine; workers, servers and Spark, which use nothing else, on those above.
EVERY_ENGINE = (*ENGINES, REDIS, MARIADB)
# As parameters: `make quick` leaves out those that need a server process.
EVERY_ENGINE_MARKED = (
    *ENGINES,
    *(pytest.param(row, marks=pytest.mark.database_server) for row in EVERY_ENGINE if row not in ENGINES),
)
CLUSTER_MARKED = pytest.param(
    REDIS_CLUSTER, marks=[pytest.mark.database_server, pytest.mark.xdist_group("redis_cluster")]
)
VALKEY_MARKED = pytest.param(VALKEY, marks=pytest.mark.database_server)


def capabilities(engine: EngineRow) -> Capabilities:
    """Which facets of the contract the engine has, and its flags."""
    with penstock.connect(engine.any_url) as store:
        return store.engine.capabilities
