"""As a part of another application: under a prefix, with its users, without its start and end."""

from __future__ import annotations

from pathlib import Path

import fastapi
import httpx
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import Mount

import penstock
from penstock import AsyncStore
from penstock.servers.access import User, make_user
from penstock.servers.http import application
from penstock.servers.http.router import path_to, segments_of
from tests.servers.http.api_client import done, problem

pytestmark = pytest.mark.anyio


def calling(app: object, host: str = "127.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(host, 5))  # type: ignore[arg-type]  # an ASGI application
    return httpx.AsyncClient(transport=transport, base_url="http://localhost")


@pytest.mark.parametrize("kind", ["starlette", "fastapi"])
@pytest.mark.parametrize("prefix", ["/queue", "/a b/ü"])
async def test_mounted_under_a_prefix(tmp_path: Path, kind: str, prefix: str) -> None:
    """Opened by the first request: nobody tells a mounted application that its host has started."""
    url = f"sqlite:///{tmp_path}/store.db"
    app = application(url, dashboard=False)
    outer: Starlette
    if kind == "starlette":
        outer = Starlette(routes=[Mount(prefix, app)])
    else:
        outer = fastapi.FastAPI()
        outer.mount(prefix, app)
    try:
        async with calling(outer) as client:
            sent = done(await client.post(f"{prefix}/api/v1/queues/a%2Fb/messages", json={"payload": 1}))["id"]
            found = done(await client.get(f"{prefix}/api/v1/queues/a%2Fb/messages/{sent}"))
            assert found["queue"] == "a/b"
            document = done(await client.get(f"{prefix}/api/v1/openapi.json"))
            assert document["servers"] == [{"url": prefix}]
            assert (await client.get("/api/v1/queues")).status_code == 404
    finally:
        await app.close()
    with penstock.connect(url) as store:
        assert store.queue("a/b").stats(group="default").available == 1


async def test_a_store_that_is_given_stays_open(store: AsyncStore) -> None:
    app = application(store, dashboard=False)
    async with calling(app) as client:
        done(await client.get("/api/v1/queues"))
    await app.close()
    assert await store.queues() == []


async def test_outer_application_identifies_users(store: AsyncStore) -> None:
    known = {"ann": make_user("ann", None, ["hers"], ["send", "look"])}

    async def identify(request: Request) -> User | None:
        return known.get(request.headers.get("x-user", ""))

    app = application(store, identify=identify, dashboard=False)
    async with calling(app, "192.0.2.7") as client:
        problem(await client.get("/api/v1/queues"), 401)
        as_ann = {"x-user": "ann"}
        done(await client.post("/api/v1/queues/hers/messages", json={"payload": 1}, headers=as_ann))
        problem(await client.post("/api/v1/queues/his/messages", json={"payload": 1}, headers=as_ann), 404)
        problem(await client.post("/api/v1/queues/hers/receive", headers=as_ann), 403)
        assert done(await client.get("/api/v1/me", headers=as_ann))["name"] == "ann"


async def test_start_and_end_of_a_server(tmp_path: Path) -> None:
    app = application(f"sqlite:///{tmp_path}/store.db", dashboard=False)
    messages = iter([{"type": "lifespan.startup"}, {"type": "lifespan.shutdown"}])
    said: list[str] = []

    async def receive() -> dict[str, str]:
        return next(messages)

    async def send(message: dict[str, str]) -> None:
        said.append(message["type"])

    await app({"type": "lifespan"}, receive, send)
    assert said == ["lifespan.startup.complete", "lifespan.shutdown.complete"]


async def test_startup_reports_a_store_that_cannot_be_opened(tmp_path: Path) -> None:
    app = application(f"sqlite:///{tmp_path}/no/such/folder/store.db", dashboard=False)
    async with calling(app) as client:
        response = await client.get("/api/v1/queues")
        assert response.status_code in (500, 503)
        assert str(tmp_path) not in response.text


@pytest.mark.parametrize(
    ("raw", "root", "segments"),
    [
        (b"/a/b%2Fc/", "", ["a", "b/c", ""]),
        (b"/app/x?y=/z", "/app", ["x"]),
        (b"/a%20b/x", "/a b", ["x"]),
        (b"/x", "/app", ["x"]),
        (b"/%252F", "", ["%2F"]),
    ],
)
def test_segments_of_a_path(raw: bytes, root: str, segments: list[str]) -> None:
    scope = {"raw_path": raw, "path": "", "root_path": root}
    assert segments_of(scope) == segments


def test_a_link_leads_where_it_should() -> None:
    scope = {"root_path": "/a b", "path": ""}
    link = path_to(scope, "queues", "x/ü%?#", "..")
    assert link == "/a%20b/queues/x%2F%C3%BC%25%3F%23/.."
    assert segments_of({**scope, "raw_path": link.encode()}) == ["queues", "x/ü%?#", ".."]
