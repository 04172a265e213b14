"""Each test here runs once for each client."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.speakers import SPEAKERS, Speaker
from tests.servers.clients.wire import Wire

_numbers = itertools.count(1)


@pytest.fixture(
    scope="module", params=[pytest.param(name, marks=pytest.mark.xdist_group(name), id=name) for name in SPEAKERS]
)
def connect(request: pytest.FixtureRequest, shared_server: PenstockServer) -> Callable[[], Speaker]:
    """Makes one more connection of the client under test."""
    return lambda: SPEAKERS[request.param](shared_server.port)


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
def onlooker(shared_server: PenstockServer) -> Iterator[Wire]:
    """A connection that looks at what the client under test does."""
    with Wire(shared_server.port) as wire:
        yield wire
