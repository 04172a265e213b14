"""The numbers on the pages are those of the store."""

from __future__ import annotations

import re

import httpx
from playwright.sync_api import Page, expect

import penstock
from tests.servers.http.busy_queue import make_busy
from tests.servers.http.dashboard.page_log import cells, number


def test_the_queue_page_says_what_stats_says(page: Page, queue: penstock.Queue) -> None:
    stats = make_busy(queue)
    page.goto(f"/queues/{queue.name}")
    shown = cells(page, "default")
    columns = {"Waiting": "available", "Retries": "redo", "In progress": "in_progress", "Held": "held"}
    columns |= {"Lag": "lag", "Done": "done", "Dead": "dead", "Consumers": "consumers"}
    assert {name: number(shown[name]) for name in columns} == {
        name: getattr(stats, field) for name, field in columns.items()
    }
    assert (stats.available, stats.in_progress, stats.held, stats.done, stats.dead) == (20, 7, 5, 11, 2)


def test_the_overview_says_what_stats_says(page: Page, queue: penstock.Queue) -> None:
    stats = make_busy(queue)
    page.goto("/")
    # A sample may be two seconds old when the page is made; the stream brings the next, also with a queue that is new.
    row = page.locator("tbody tr", has=page.get_by_role("link", name=queue.name, exact=True))
    expect(row.locator("td[data-label=Waiting]")).to_have_text(f"{stats.available + stats.redo}")
    shown = cells(page, queue.name)
    assert number(shown["In progress"]) == stats.in_progress
    assert number(shown["Held"]) == stats.held
    assert number(shown["Dead"]) == stats.dead


def test_totals_are_the_sums_of_the_rows(http: httpx.Client, queue: penstock.Queue) -> None:
    make_busy(queue)
    text = http.get("/").text
    for name in ("Waiting", "In progress"):
        total = re.search(rf"<dt>{name}</dt><dd>([0-9,]+)</dd>", text)
        rows = re.findall(rf'data-label="{name}"><(?:b|span) class="[^"]*">([0-9,]+)<', text)
        assert total is not None
        assert len(rows) == text.count('<tr id="row-')
        assert number(total[1]) == sum(map(number, rows)) > 0


def test_batches_show_their_progress(page: Page, queue: penstock.Queue) -> None:
    batch = queue.batch("march")
    batch.send_many([b"one", b"two", b"three"])
    batch.start()
    queue.receive(limit=1)[0].ack()
    page.goto(f"/batches?queue={queue.name}")
    shown = cells(page, "march")
    assert shown["Finished"] == "1 of 3"
    assert number(shown["To go"]) == batch.remaining == 2
