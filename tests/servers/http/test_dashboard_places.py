"""Pages without a browser: under a prefix, of the pipeline, and the headers they come with."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from penstock import AsyncStore
from penstock.servers.http import application
from penstock.servers.http.dashboard.rendering import assets

pytestmark = pytest.mark.anyio
REPORT = (
    '<!doctype html>\n<html><head><meta name="generator" content="penstock report"></head><body>all well</body></html>'
)


def _calling(app: object) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 5))  # type: ignore[arg-type]  # an ASGI application
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers={"accept": "text/html"})


@pytest.fixture
async def pages(store: AsyncStore) -> AsyncIterator[httpx.AsyncClient]:
    app = application(store)
    async with _calling(app) as client:
        yield client
    await app.close()


async def test_links_stay_under_the_prefix(store: AsyncStore) -> None:
    name = "a/b ü"
    message_id = await (await store.queue(name)).send(b"x")
    app = application(store)
    async with _calling(Starlette(routes=[Mount("/inner/place", app)])) as client:
        for path in (
            "",
            "/queues/a%2Fb%20%C3%BC",
            f"/queues/a%2Fb%20%C3%BC/messages/{message_id}",
            "/search",
            "/batches",
        ):
            answer = await client.get(f"/inner/place{path or '/'}")
            assert answer.status_code == 200, path
            links = re.findall(r'(?:href|src|action|hx-get|data-events)="(/[^"]*)"', answer.text)
            assert len(links) > 10
            assert [link for link in links if not link.startswith("/inner/place/")] == []
        asset = re.search(r'src="(/inner/place/static/app\.js[^"]*)"', (await client.get("/inner/place/dead")).text)
        assert asset is not None
        assert (await client.get(asset[1])).status_code == 200
    await app.close()


async def test_only_files_of_the_dashboard_are_served(pages: httpx.AsyncClient) -> None:
    for path, asset in assets().items():
        answer = await pages.get(f"/static/{path}")
        assert answer.content == asset.content
        assert "immutable" in answer.headers["cache-control"]
    for path in ("../rendering.py", "..%2Frendering.py", "vendor", "vendor/..%2f..%2fentry.py", "%00", "app.css/", ""):
        assert (await pages.get(f"/static/{path}")).status_code == 404, path


async def test_what_came_from_others_comes_with_its_licence() -> None:
    names = {path.removeprefix("vendor/") for path in assets() if path.startswith("vendor/")}
    for start in {name.split("-")[0] for name in names}:
        assert f"{start}-LICENSE.txt" in names


async def test_nothing_on_a_page_needs_what_the_policy_forbids(pages: httpx.AsyncClient, store: AsyncStore) -> None:
    queue = await store.queue("plain")
    message_id = await queue.send({"n": 1})
    for path in ("/", "/queues/plain", f"/queues/plain/messages/{message_id}", "/search", "/pipeline", "/nowhere"):
        answer = await pages.get(path)
        assert "default-src 'self'" in answer.headers["content-security-policy"]
        assert len(answer.headers.get_list("content-security-policy")) == 1
        assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:|<script(?![^>]*\ssrc=)", answer.text), path
        assert not re.search(r'(?:src|href)="(?:https?:)?//', answer.text), path
        assert answer.headers["cache-control"] == "no-store"


# -- the pipeline ----------------------------------------------------------------------------------------------------


def _leave(store: AsyncStore, entries: dict[str, Any]) -> None:
    """What a run of the pipeline leaves in the ledger."""
    encoded = {key: value if isinstance(value, str) else json.dumps(value) for key, value in entries.items()}
    store.engine.ledger = lambda kind, prefix="": encoded if kind == "pipeline" else {}  # type: ignore[attr-defined, method-assign, unused-ignore]


async def test_a_pipeline_that_never_ran_teaches_the_command(pages: httpx.AsyncClient) -> None:
    assert "penstock pipeline run" in (await pages.get("/pipeline")).text
    assert (await pages.get("/pipeline/report")).status_code == 404


async def test_runs_lake_and_report(pages: httpx.AsyncClient, store: AsyncStore, tmp_path: Path) -> None:
    (tmp_path / "report.html").write_text(REPORT, encoding="utf-8")
    run = {"job": "archive", "state": "succeeded", "started_at": "2026-11-15T03:00:00Z", "unknown": 1}
    failed = {"job": "report", "state": "failed", "started_at": "2026-11-15T04:00:00Z", "error": "<b>no Java</b>"}
    _leave(
        store,
        {
            "run/1/archive": {**run, "ended_at": "2026-11-15T03:01:30Z", "rows": 12_345},
            "run/2/report": failed,
            "run/3/broken": "{",
            "lake/main": {"path": "/data/lake", "fresh_until": "2026-11-15T02:59:00Z", "rows": 99, "bytes": 2048},
            "report": {"path": str(tmp_path / "report.html"), "made_at": "2026-11-15T03:02:00Z"},
        },
    )
    text = (await pages.get("/pipeline")).text
    assert "12,345" in text
    assert "1 m 30 s" in text
    assert "&lt;b&gt;no Java&lt;/b&gt;" in text
    assert text.index("report</th>") < text.index("archive</th>"), "the latest run comes first"
    assert "/data/lake" in text
    answer = await pages.get("/pipeline/report")
    assert answer.text == REPORT
    assert answer.headers.get_list("content-security-policy") == [
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    ]


async def test_only_a_report_is_handed_out(pages: httpx.AsyncClient, store: AsyncStore, tmp_path: Path) -> None:
    """Whoever can write to the store must not be able to read files of the server through it."""
    secret = tmp_path / "secret.html"
    secret.write_text("<!doctype html>\n<p>a secret", encoding="utf-8")
    for path in (str(secret), "/etc/passwd", str(tmp_path), "/nowhere", "\0"):
        _leave(store, {"report": {"path": path}})
        assert (await pages.get("/pipeline/report")).status_code == 404
        assert (await pages.get("/pipeline")).status_code == 200
