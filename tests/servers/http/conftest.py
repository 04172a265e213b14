"""A server inside the test's own event loop, on a real store and a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from penstock import AsyncStore, connect_async
from penstock.servers.access import Users, make_users
from penstock.servers.http import Application, application
from penstock.servers.http.server import HttpListener
from penstock.settings import HttpSettings
from tests.servers.http.api_client import Api

Serve = Callable[[Application, HttpSettings], Awaitable[HttpListener]]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[AsyncStore]:
    async with await connect_async(f"sqlite:///{tmp_path}/store.db") as store:
        yield store


@pytest.fixture
def settings() -> HttpSettings:
    return HttpSettings(port=0)


@pytest.fixture
def users() -> Users:
    """Nobody has to say who they are, unless a test says otherwise."""
    return Users(make_users(None, {}))


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    begun: list[HttpListener] = []

    async def begin(app: Application, settings: HttpSettings) -> HttpListener:
        listener = HttpListener(app, settings, None)
        begun.append(listener)
        await listener.start()
        return listener

    yield begin
    for listener in begun:
        await listener.stop()


@pytest.fixture
async def server(store: AsyncStore, users: Users, settings: HttpSettings, serve: Serve) -> HttpListener:
    return await serve(application(store, users=users, settings=settings, dashboard=False), settings)


@pytest.fixture
async def client(server: HttpListener) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60) as opened:
        yield opened


@pytest.fixture
def api(client: httpx.AsyncClient) -> Api:
    return Api(client)
