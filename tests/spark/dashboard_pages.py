"""Checks of the pipeline pages of dashboard and API."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import httpx

from penstock.servers.http import application

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it recommends another HTTP client
    from starlette.testclient import TestClient

POLICY = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


def get(url: str, path: str) -> httpx.Response:
    with TestClient(application(url), "http://localhost", client=("127.0.0.1", 5)) as client:
        answer: Any = client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, answer.text
    found: httpx.Response = answer
    return found


def check_pages(url: str, status: dict[str, Any], told: list[str]) -> None:
    """The pages show the status and serve the report."""
    assert get(url, "/api/v1/pipeline").json() == status
    text = get(url, "/pipeline").text
    for words in (*told, status["lakes"][0]["path"], status["report"]["path"], "Open the report"):
        assert words in text, words
    assert text.count(">succeeded</span>") == sum(run["ok"] for run in status["runs"])
    assert len(status["report"]["findings"]) > 0
    assert text.count("<li>") == len(status["report"]["findings"])
    report = get(url, "/pipeline/report")
    assert report.content == Path(status["report"]["path"]).read_bytes()
    assert report.headers.get_list("content-security-policy") == [POLICY]
