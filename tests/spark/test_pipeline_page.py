"""What a run of the pipeline leaves in the store is what the dashboard, the API and the command line show."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.client.pipeline import PipelineStatus, pipeline_status
from penstock.domain.errors import PenstockError
from penstock.servers.http import application
from penstock.spark.jobs import Place, Upkeep, run_all, run_report, run_verify
from tests.conformance.engines import ENGINES, EngineRow
from tests.spark.stores import fill

pytestmark = pytest.mark.anyio


class Ran(NamedTuple):
    url: str
    status: PipelineStatus
    report: Path


@pytest.fixture(scope="module", params=ENGINES, ids=lambda row: row.name)
def ran(request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ran]:
    """One real run, a look whether it was right, and one that fails."""
    row: EngineRow = request.param
    folder = tmp_path_factory.mktemp("pipeline")
    url = row.fresh_url(folder)
    place, report = Place(url, str(folder / "lake")), folder / "report.html"
    with penstock.connect(url) as store:
        fill(store, 28)
        run_all(place, str(report), Upkeep(), lambda line: None)
        run_verify(place, lambda line: None)
        with contextlib.suppress(PenstockError):
            run_report(Place(url, str(folder / "nowhere")), str(report), lambda line: None)
        yield Ran(url, pipeline_status(store.engine), report)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
async def client(ran: Ran) -> AsyncIterator[httpx.AsyncClient]:
    app = application(ran.url)
    transport = httpx.ASGITransport(app, client=("127.0.0.1", 5))
    headers = {"accept": "text/html"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as opened:
        yield opened
    await app.close()


async def test_the_page_shows_runs_lake_and_report(ran: Ran, client: httpx.AsyncClient) -> None:
    text = (await client.get("/pipeline")).text
    assert "21 ended messages, 82 audit entries and 5 dead letters of 1 queue archived" in text
    assert "rows of the lake agree with the store" in text
    assert "nowhere" in text
    assert text.count(">succeeded</span>") == 2
    assert text.count(">failed</span>") == 1
    (lake,) = ran.status.lakes
    assert lake.path in text
    assert lake.archived_at.isoformat() in text
    assert str(ran.report) in text
    assert ran.status.report is not None
    assert ran.status.report.findings
    assert all(finding[:20] in text for finding in ran.status.report.findings)
    assert "Open the report" in text


async def test_the_report_is_the_file_and_may_do_nothing(ran: Ran, client: httpx.AsyncClient) -> None:
    answer = await client.get("/pipeline/report")
    assert answer.content == ran.report.read_bytes()
    assert answer.headers.get_list("content-security-policy") == [
        "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
    ]


async def test_the_api_says_the_same(ran: Ran, client: httpx.AsyncClient) -> None:
    told = (await client.get("/api/v1/pipeline")).json()
    assert [(run["job"], run["ok"]) for run in told["runs"]] == [("report", False), ("verify", True), ("run", True)]
    assert told["runs"][2]["result"]["archive"] == 21
    assert told["lakes"][0]["files"] == ran.status.lakes[0].files > 0
    assert told["report"]["path"] == str(ran.report)
