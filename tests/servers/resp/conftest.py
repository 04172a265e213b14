"""A server inside the test's own event loop, on a real store and real sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import AsyncStore, connect_async
from penstock.servers.access import Users, make_users
from penstock.servers.resp.server import Server
from penstock.settings import RespSettings
from tests.conformance.engines import ENGINES, EngineRow
from tests.servers.resp.client import Client, Talk


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=ENGINES, ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row


@pytest.fixture
async def store(tmp_path: Path, engine_row: EngineRow) -> AsyncIterator[AsyncStore]:
    async with await connect_async(engine_row.fresh_url(tmp_path)) as store:
        yield store


@pytest.fixture
def settings() -> RespSettings:
    return RespSettings()


@pytest.fixture
async def server(store: AsyncStore, settings: RespSettings) -> AsyncIterator[Server]:
    server = Server(store, Users(make_users(settings.password, {})), settings)
    yield server
    await server.close()


@pytest.fixture
async def talk(server: Server) -> AsyncIterator[Talk]:
    """Opens connections; they are closed at the end."""
    port = await server.listen("127.0.0.1", 0)
    opened: list[Client] = []

    async def connect() -> Client:
        client = await Client.connect(port)
        opened.append(client)
        return client

    yield connect
    for client in opened:
        client.close()


@pytest.fixture
async def client(talk: Talk) -> Client:
    return await talk()
