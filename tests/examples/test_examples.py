"""The examples run and produce their documented results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

import penstock
from examples import email_verification, markdown_renderer, scheduled_report, shop_api
from penstock.testing import Clock, memory_store, run_due


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime(2026, 3, 2, 6, 30, tzinfo=UTC))


@pytest.fixture
def store(clock: Clock) -> Iterator[penstock.Store]:
    with memory_store(clock) as store:
        yield store


def test_a_code_is_sent_in_time_or_not_at_all(store: penstock.Store, clock: Clock) -> None:
    email_verification.sent.clear()
    run_due(store, email_verification.app)
    asked = [("ada@example.com", "1111"), ("busy@example.com", "2222"), ("nobody@example.invalid", "3333")]
    for to, code in asked:
        email_verification.ask_for_code(store, to, code, clock.now)
    run_due(store, email_verification.app)
    assert [code["code"] for code in email_verification.sent] == ["1111"]
    clock.advance(minutes=11)
    run_due(store, email_verification.app)
    queue = store.queue(email_verification.QUEUE)
    outcomes = {letter.json()["code"]: (str(letter.outcome), letter.reason) for letter in queue.dead_letters()}
    assert outcomes["3333"] == ("rejected", "nobody@example.invalid does not exist")
    assert outcomes["2222"][0] == "expired"
    assert [code["code"] for code in email_verification.sent] == ["1111"]


def test_a_site_is_rendered_page_by_page_and_its_index_last(tmp_path: Path) -> None:
    with penstock.connect(f"sqlite:///{tmp_path}/site.db") as store:
        renderer = markdown_renderer.Renderer(store, tmp_path)
        renderer.start()
        penstock.Worker(store, renderer.app).run(once=True)
        rendered = {path.stem: path.read_text() for path in tmp_path.glob("*.html")}
        assert rendered["welcome"] == (
            "<h1>Welcome</h1>\n<h1>News</h1>\nAll rights reserved.\nNothing new.\nBe <em>bold</em>."
        )
        assert rendered["index"].count("<li>") == 3
        assert store.queue("pages").batch("site").state == "finished"


def test_an_order_and_its_message_commit_together(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "shop.db")

    async def order(*orders: dict[str, object]) -> list[httpx.Response]:
        api = shop_api.make_app(path)
        async with api.router.lifespan_context(api):
            async with httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="http://shop") as client:
                return [await client.post("/orders", json=one) for one in orders]

    good, bad = asyncio.run(
        order({"customer": "Ada", "item": "pen", "amount": 3}, {"customer": "Alan", "item": "pen", "amount": 300})
    )
    assert (good.status_code, bad.status_code) == (201, 409)
    with penstock.connect(f"sqlite:///{path}") as store:
        penstock.Worker(store, shop_api.tasks).run(once=True)
        assert store.queue("orders").stats("default").outcomes["succeeded"] == 1
        assert [str(entry.event) for entry in store.queue("orders").audit(good.json()["message"])][-1] == "ack"
    assert capsys.readouterr().out == "shipping 3 × pen to Ada (attempt 1)\n"


def test_a_report_is_written_for_each_monday_once(store: penstock.Store, clock: Clock) -> None:
    scheduled_report.written.clear()
    run_due(store, scheduled_report.app)
    assert scheduled_report.written == []
    clock.advance(hours=1)
    run_due(store, scheduled_report.app)
    run_due(store, scheduled_report.app)
    clock.advance(days=7)
    run_due(store, scheduled_report.app)
    assert scheduled_report.written == [
        "weekly report of 2026-03-02: sales counted, returns counted",
        "weekly report of 2026-03-09: sales counted, returns counted",
    ]
