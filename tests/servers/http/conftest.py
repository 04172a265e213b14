"""A server inside the test's own event loop, on a real store and a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from penstock import AsyncStore, connect_async
from penstock.servers.access import Users, make_users
from penstock.servers.http import Application, application
from penstock.servers.http.serving import Listener
from penstock.settings import HttpSettings
from tests.servers.http.asking import Api

Serve = Callable[[Application, HttpSettings], Awaitable[Listener]]


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
    begun: list[Listener] = []

    async def begin(app: Application, settings: HttpSettings) -> Listener:
        listener = Listener(app, settings, None)
        begun.append(listener)
        await listener.begin()
        return listener

    yield begin
    for listener in begun:
        await listener.end()


@pytest.fixture
async def server(store: AsyncStore, users: Users, settings: HttpSettings, serve: Serve) -> Listener:
    return await serve(application(store, users=users, settings=settings, dashboard=False), settings)


@pytest.fixture
async def client(server: Listener) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as opened:
        yield opened


@pytest.fixture
def api(client: httpx.AsyncClient) -> Api:
    return Api(client)
