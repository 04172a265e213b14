"""The pipeline: its last runs, how fresh the lake is, and the report.

Penstock's Spark jobs record their runs in the store; this page shows them and starts nothing. They concern all queues,
so the page is for users who may look at all of them.
"""

from __future__ import annotations

import asyncio
import stat
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from penstock.client.pipeline import PipelineRun, PipelineStatus, ReportStatus, pipeline_status
from penstock.domain.errors import NotFound
from penstock.servers.access import Right
from penstock.servers.http.auth import check_all_queues, identity_of
from penstock.servers.http.dashboard.figures import plural
from penstock.servers.http.dashboard.renderer import page
from penstock.servers.http.router import Route
from penstock.servers.http.state import http_state

MAX_REPORT_BYTES = 64 << 20
# A report is one self-contained file. Its policy forbids scripts and requests.
REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
GENERATOR = b'<meta name="generator" content="penstock report">'
HEAD_BYTES = 2048


class RunRow(NamedTuple):
    run: PipelineRun
    result: str


async def show(request: Request) -> Response:
    status = await _status(request)
    return page(
        request,
        "pipeline.html",
        rows=[RunRow(run, result_of(run)) for run in status.runs],
        lakes=status.lakes,
        report=status.report,
        can_show=status.report is not None and await asyncio.to_thread(_head, status.report) is not None,
    )


async def show_report(request: Request) -> Response:
    report = (await _status(request)).report
    content = None if report is None else await asyncio.to_thread(_content, report)
    if content is None:
        raise NotFound("there is no report here: make one with `penstock pipeline report`")
    return Response(content, headers={"content-security-policy": REPORT_POLICY}, media_type="text/html")


async def _status(request: Request) -> PipelineStatus:
    check_all_queues(identity_of(request), "the pipeline")
    store = http_state(request).store
    return await store.executor.read(lambda: pipeline_status(store.engine))


def result_of(run: PipelineRun) -> str:
    """The result of a run, in a few words."""
    if not run.ok:
        return run.error or "it did not say why"
    result = run.result
    if "archive" in result:
        return _archived(result["archive"], result["audit"], result["dead_letters"], result["queues"])
    if "comparisons" in result:
        rows = sum(one["rows"] for one in result["comparisons"])
        return f"{plural(rows, 'row')} of the lake {'agree' if result['ok'] else 'do NOT agree'} with the store"
    return f"written to {result['path']}" if "path" in result else ""


def _archived(messages: int, entries: int, letters: int, queues: int) -> str:
    if not queues:
        return "nothing new"
    trail = plural(entries, "audit entry", "audit entries")
    return (
        f"{plural(messages, 'ended message')}, {trail} and {plural(letters, 'dead letter')} of "
        f"{plural(queues, 'queue')} archived"
    )


# -- the file --------------------------------------------------------------------------------------------------------


def _content(report: ReportStatus) -> bytes | None:
    return None if _head(report) is None else Path(report.path).read_bytes()


def _head(report: ReportStatus) -> bytes | None:
    """Only of a file that is a report of Penstock: an entry in the store must not expose other files."""
    try:
        found = Path(report.path).stat()
        # Reading a pipe or a device may never end.
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_REPORT_BYTES:
            return None
        with Path(report.path).open("rb") as file:
            head = file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return None
    return head if head.lower().lstrip().startswith(b"<!doctype html>") and GENERATOR in head else None


ROUTES = [
    Route("GET", "/pipeline", show, Right.LOOK),
    Route("GET", "/pipeline/report", show_report, Right.LOOK),
]
