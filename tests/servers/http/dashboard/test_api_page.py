"""The page that describes the API: reachable from the dashboard, complete, and loaded from this server alone."""

from __future__ import annotations

import json
import subprocess
from typing import Any

from playwright.sync_api import Page, Request, expect

from penstock.servers.http.api.operations import OPERATIONS
from penstock.servers.http.security import POLICY
from tests.servers.http.dashboard.conftest import Served
from tests.servers.http.dashboard.page_log import Watched


def test_every_operation_is_on_the_page(page: Page, served: Served) -> None:
    watched, asked = Watched(page), list[str]()
    page.on("request", lambda request: _note(request, asked))
    page.goto("/")
    page.get_by_role("link", name="API", exact=True).click()
    expect(page.locator("h1")).to_have_text("API")
    shown = page.locator("details.operation").evaluate_all("every => every.map(one => one.id)")
    assert sorted(shown) == sorted(one.name for one in OPERATIONS)
    assert asked
    assert all(url.startswith(served.base) for url in asked)
    answer = page.reload()
    assert answer is not None
    assert answer.headers["content-security-policy"] == POLICY
    assert not watched.complaints


def _note(request: Request, asked: list[str]) -> None:
    asked.append(request.url)


def test_the_calls_on_the_page_work_in_a_shell(page: Page, served: Served) -> None:
    page.goto("/docs")
    sent = _run(page, "send")
    assert set(sent) == {"id"}
    assert [delivery["id"] for delivery in _run(page, "receive")["deliveries"]] == [sent["id"]]
    assert _run(page, "send_stream") == {"lines": 2, "sent": 2, "failed": 0, "errors": []}
    assert _run(page, "put_schedule")["cron"] == "*/5 * * * *"


def _run(page: Page, operation: str) -> dict[str, Any]:
    page.locator(f"#{operation} > summary").click()
    command = page.locator(f"#{operation} .command code").inner_text()
    done = subprocess.run(["sh", "-c", f"{command} -s"], capture_output=True, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
