"""Pages without a browser: under a prefix, of the pipeline, and the headers they come with."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from penstock import AsyncStore
from penstock.client.pipeline import PipelineRun, ReportStatus, note_report, note_run
from penstock.servers.access import hash_token, make_token, make_user
from penstock.servers.http import application
from penstock.servers.http.dashboard.renderer import assets

pytestmark = pytest.mark.anyio
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
ARCHIVED = {"window": 1, "queues": 2, "audit": 3, "archive": 12_345, "dead_letters": 1, "files": 4, "size": 5}


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
# What a real run writes is shown in tests/spark/test_pipeline_commands.py.


async def test_a_pipeline_that_never_ran_teaches_the_command(pages: httpx.AsyncClient) -> None:
    assert "penstock pipeline run" in (await pages.get("/pipeline")).text
    assert (await pages.get("/pipeline/report")).status_code == 404
    assert (await pages.get("/api/v1/pipeline")).json() == {"runs": [], "lakes": [], "report": None}


async def test_the_latest_run_comes_first_and_errors_are_data(pages: httpx.AsyncClient, store: AsyncStore) -> None:
    note_run(store.engine, PipelineRun("archive", NOON, 90, True, ARCHIVED))
    note_run(store.engine, PipelineRun("report", NOON + timedelta(hours=1), 0.5, False, {}, "<b>no Java</b>"))
    # Of a version to come: left out, and no reason to show nothing.
    store.engine.record("pipeline", {"run/2030": '{"work": 1}', "report": "{"})
    text = (await pages.get("/pipeline")).text
    assert "12,345 ended messages, 3 audit entries and 1 dead letter of 2 queues archived" in text
    assert "1 m 30 s" in text
    assert "&lt;b&gt;no Java&lt;/b&gt;" in text
    assert text.index("report</th>") < text.index("archive</th>")
    assert [run["job"] for run in (await pages.get("/api/v1/pipeline")).json()["runs"]] == ["report", "archive"]


async def test_only_a_report_is_handed_out(pages: httpx.AsyncClient, store: AsyncStore, tmp_path: Path) -> None:
    """Whoever can write to the store must not be able to read files of the server through it."""
    secret, pipe = tmp_path / "secret.html", tmp_path / "pipe"
    secret.write_text("<!doctype html>\n<p>a secret", encoding="utf-8")
    os.mkfifo(pipe)
    for path in (str(secret), str(pipe), "/etc/passwd", "/dev/zero", str(tmp_path), "/nowhere", "\0"):
        note_report(store.engine, ReportStatus(path, NOON))
        assert (await pages.get("/pipeline/report")).status_code == 404
        assert (await pages.get("/pipeline")).status_code == 200


async def test_pipeline_page_needs_the_right_to_all_queues(store: AsyncStore) -> None:
    token = make_token()
    app = application(store, users=[make_user("narrow", None, ["mine-*"], ["look"], token_hash=hash_token(token))])
    async with _calling(app) as client:
        client.headers["authorization"] = f"Bearer {token}"
        for path in ("/pipeline", "/pipeline/report", "/api/v1/pipeline"):
            assert (await client.get(path)).status_code == 403, path
        assert 'href="/pipeline"' not in (await client.get("/")).text
    await app.close()
