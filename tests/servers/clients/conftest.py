"""Each test here runs once for each client."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.servers.clients.client_programs import SPEAKERS, Speaker
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.wire import Wire

_numbers = itertools.count(1)
ENGINE_NAMES = {"shared_server": "", "postgres_server": " on PostgreSQL"}


# Which client speaks to a server on which engine: all of them to one, and one to all.
PAIRS = [*((name, "shared_server") for name in SPEAKERS), ("redis-py 8 RESP3", "postgres_server")]


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((name, server), marks=pytest.mark.xdist_group(name), id=f"{name}{ENGINE_NAMES[server]}")
        for name, server in PAIRS
    ],
)
def pair(request: pytest.FixtureRequest) -> tuple[str, PenstockServer]:
    """A client, and the server that it speaks to."""
    name, server = request.param
    return name, request.getfixturevalue(server)


@pytest.fixture(scope="module")
def connect(pair: tuple[str, PenstockServer]) -> Callable[[], Speaker]:
    """Makes one more connection of the client under test."""
    name, server = pair
    return lambda: SPEAKERS[name](server.port)


@pytest.fixture(scope="module")
def client(connect: Callable[[], Speaker]) -> Iterator[Speaker]:
    """A connection of the client under test, kept for all tests of a file."""
    with connect() as speaker:
        yield speaker


@pytest.fixture
def queue() -> str:
    """A name that no other test uses."""
    return f"queue-{next(_numbers)}"


@pytest.fixture(scope="module")
def onlooker(pair: tuple[str, PenstockServer]) -> Iterator[Wire]:
    """A connection that looks at what the client under test does."""
    with Wire(pair[1].port) as wire:
        yield wire
