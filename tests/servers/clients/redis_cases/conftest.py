"""`case` is one that Penstock and Redis answer alike; `ours` one in which Penstock differs, as docs/seeds.md says."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from tests.servers.clients.processes import ServerProcess
from tests.servers.clients.redis_cases.case import Case
from tests.servers.clients.wire import Wire

_numbers = itertools.count(1)


def _made(request: pytest.FixtureRequest, fixture: str) -> Iterator[Case]:
    server: ServerProcess = request.getfixturevalue(fixture)
    opened = Case(server.port, f"case-{next(_numbers)}", _version(server.port) if fixture == "redis_server" else None)
    yield opened
    opened.close()


def _version(port: int) -> tuple[int, ...]:
    with Wire(port) as wire:
        lines = wire.call("INFO", "server").decode().splitlines()
    version = next(line.partition(":")[2] for line in lines if line.startswith("redis_version:"))
    return tuple(int(part) for part in version.split("."))


@pytest.fixture(params=["shared_server", "postgres_server", "redis_server"], ids=["sqlite", "postgres", "redis"])
def case(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _made(request, request.param)


@pytest.fixture(params=["shared_server", "postgres_server"], ids=["sqlite", "postgres"])
def ours(request: pytest.FixtureRequest) -> Iterator[Case]:
    yield from _made(request, request.param)
