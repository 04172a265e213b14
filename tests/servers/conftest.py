"""A Penstock server and a Redis server, each a real process with nothing in it yet."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.engines.postgres.server import fresh_database
from tests.servers.clients.processes import PenstockServer, RedisServer
from tests.servers.clients.wire import Wire


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PenstockServer]:
    """A server with a new store, for this test alone."""
    with PenstockServer(tmp_path) as process:
        yield process.start()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    """One for the whole run, for tests that only need queues of their own name."""
    with PenstockServer(tmp_path_factory.mktemp("penstock")) as process:
        yield process.start()


@pytest.fixture(scope="session")
def postgres_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PenstockServer]:
    """The same on PostgreSQL."""
    folder = tmp_path_factory.mktemp("penstock")
    with PenstockServer(folder, url=fresh_database()) as process:
        yield process.start()


@pytest.fixture
def wire(server: PenstockServer) -> Iterator[Wire]:
    with Wire(server.port) as connection:
        yield connection


@pytest.fixture
def store(server: PenstockServer) -> Iterator[penstock.Store]:
    """The same store through Python."""
    with penstock.connect(server.url) as opened:
        yield opened


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """One for the whole run: each test uses streams of its own name."""
    if shutil.which("redis-server") is None:
        pytest.skip("redis-server is not installed (Debian: apt-get install redis-server)")
    with RedisServer(tmp_path_factory.mktemp("redis")) as process:
        yield process.start()
