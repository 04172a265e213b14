"""Clients are looked at when they can have kept the server waiting for too long, and not before."""

from __future__ import annotations

import asyncio

import pytest

from penstock.servers.resp.server import Server
from penstock.settings import RespSettings
from tests.servers.resp.client import Talk
from tests.servers.resp.test_coalesced_commands import until

pytestmark = pytest.mark.anyio
PASSWORD = "open-sesame-11"


@pytest.fixture
def settings(request: pytest.FixtureRequest) -> RespSettings:
    return RespSettings(**getattr(request, "param", {}))


def due_in(server: Server, seconds: float) -> int:
    """How many are to be looked at by then."""
    now = asyncio.get_running_loop().time()
    due = server.timeouts.due(now + seconds)
    for connection in due:
        connection.schedule_check(now)
    return len(due)


async def test_nobody_is_looked_at_who_gives_no_reason(server: Server, talk: Talk) -> None:
    clients = [await talk() for _ in range(3)]
    assert [await client("PING") for client in clients] == [b"PONG"] * 3
    assert (due_in(server, 50), due_in(server, 62)) == (0, 3)


@pytest.mark.parametrize("settings", [{"idle_seconds": 20, "request_seconds": 0}], indirect=True)
async def test_who_is_silent_is_looked_at_when_the_time_is_up(server: Server, talk: Talk) -> None:
    await (await talk())("PING")
    assert (due_in(server, 18), due_in(server, 22)) == (0, 1)


@pytest.mark.parametrize("settings", [{"password": PASSWORD, "handshake_seconds": 20}], indirect=True)
async def test_who_is_a_stranger_again_has_to_hurry_again(server: Server, talk: Talk) -> None:
    client = await talk()
    assert due_in(server, 22) == 1
    await client("AUTH", PASSWORD)
    assert due_in(server, 22) == 0
    await client("RESET")
    assert due_in(server, 22) == 1


@pytest.mark.parametrize("settings", [{"idle_seconds": 0, "request_seconds": 0}], indirect=True)
async def test_without_limits_there_is_nothing_to_look_at(server: Server, talk: Talk) -> None:
    await (await talk())("PING")
    assert due_in(server, 1e9) == 0


async def test_who_is_gone_is_forgotten(server: Server, talk: Talk) -> None:
    client = await talk()
    await client("PING")
    client.close()
    await until(lambda: not server.connections)
    assert due_in(server, 1e9) == 0
