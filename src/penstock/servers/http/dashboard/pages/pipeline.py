"""The pipeline: its last runs, how fresh the lake is, and the report.

Penstock's Spark jobs leave a few small entries in the store's ledger; this page shows them and starts nothing.
"""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from penstock.domain.errors import NotFound
from penstock.servers.access import Right
from penstock.servers.http.dashboard.rendering import page
from penstock.servers.http.routing import Route
from penstock.servers.http.site import site_of

KIND = "pipeline"
RUNS_SHOWN = 50
MAX_REPORT_BYTES = 64 << 20
# A report is one file with its plots inside. It is shown, but nothing in it may run or load anything.
REPORT_POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"
GENERATOR = b'<meta name="generator" content="penstock report">'
HEAD_BYTES = 2048


class Run(msgspec.Struct, frozen=True):
    job: str
    state: str
    started_at: datetime
    ended_at: datetime | None = None
    rows: int | None = None
    error: str | None = None
    detail: str | None = None

    @property
    def seconds(self) -> float | None:
        return None if self.ended_at is None else (self.ended_at - self.started_at).total_seconds()


class Lake(msgspec.Struct, frozen=True):
    path: str
    fresh_until: datetime | None = None
    rows: int | None = None
    bytes: int | None = None
    files: int | None = None
    updated_at: datetime | None = None


class Report(msgspec.Struct, frozen=True):
    path: str
    made_at: datetime | None = None


async def show(request: Request) -> Response:
    entries = await _entries(request)
    runs = [run for key, text in entries.items() if key.startswith("run/") if (run := _read(text, Run)) is not None]
    lakes = [
        lake for key, text in entries.items() if key.startswith("lake/") if (lake := _read(text, Lake)) is not None
    ]
    report = _read(entries.get("report", ""), Report)
    return page(
        request,
        "pipeline.html",
        runs=sorted(runs, key=lambda run: run.started_at, reverse=True)[:RUNS_SHOWN],
        lakes=lakes,
        report=report,
        can_show=report is not None and _content(report) is not None,
    )


async def show_report(request: Request) -> Response:
    report = _read((await _entries(request)).get("report", ""), Report)
    content = None if report is None else _content(report)
    if content is None:
        raise NotFound("there is no report here: make one with `penstock pipeline report`")
    return Response(content, headers={"content-security-policy": REPORT_POLICY}, media_type="text/html")


async def _entries(request: Request) -> dict[str, str]:
    store = site_of(request).store
    ledger = getattr(store.engine, "ledger", None)
    if ledger is None:
        return {}
    found: dict[str, str] = await store._read(lambda: ledger(KIND))
    return found


def _read(text: str, kind: type[Any]) -> Any:
    """What is not as it should be is left out: the page is for looking, not for finding mistakes of others."""
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.DecodeError:
        return None


def _content(report: Report) -> bytes | None:
    """Only a file that is a report of Penstock: an entry in the store must not make the server hand out others."""
    try:
        with Path(report.path).open("rb") as file:
            head = file.read(HEAD_BYTES)
            is_report = head.lower().lstrip().startswith(b"<!doctype html>") and GENERATOR in head
            content = head + file.read(MAX_REPORT_BYTES) if is_report else None
    except (OSError, ValueError):
        return None
    return content


ROUTES = [
    Route("GET", "/pipeline", show, Right.LOOK),
    Route("GET", "/pipeline/report", show_report, Right.LOOK),
]
