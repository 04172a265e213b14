"""Pages change by themselves, and nothing changes under the hands of who types."""

from __future__ import annotations

from playwright.sync_api import Locator, Page, expect

import penstock
from tests.servers.http.dashboard.page_log import submit


def test_a_queue_page_follows_the_queue(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"one")
    page.goto(f"/queues/{queue.name}")
    cell = page.locator("#groups td[data-label=Waiting]")
    expect(cell).to_have_text("1")
    queue.send_many([b"two", b"three"])
    expect(cell).to_have_text("3")
    queue.ack_many(queue.receive(limit=2))
    expect(page.locator("#groups td[data-label=Done]")).to_have_text("2")


def test_a_message_page_follows_the_message(page: Page, queue: penstock.Queue) -> None:
    message_id = queue.send(b"one")
    page.goto(f"/queues/{queue.name}/messages/{message_id}")
    expect(page.locator("#live span")).to_have_text("live")
    queue.receive(consumer="someone")[0].ack(reason="all well")
    expect(page.locator(".timeline")).to_contain_text("all well")
    expect(page.locator("#standings .state")).to_have_text("succeeded")


def test_live_updates_can_be_paused(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"one")
    page.goto(f"/queues/{queue.name}")
    expect(page.locator("#live span")).to_have_text("live")
    page.keyboard.press("p")
    expect(page.locator("#live span")).to_have_text("paused")
    assert page.evaluate("live.source") is None
    queue.send(b"two")
    page.keyboard.press("p")
    expect(page.locator("#groups td[data-label=Waiting]")).to_have_text("2")


def test_what_is_typed_stays_while_numbers_change(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"one")
    page.goto(f"/queues/{queue.name}#send")
    page.locator("[name=payload]").fill('{"half": ')
    queue.send(b"two")
    expect(page.locator("#groups td[data-label=Waiting]")).to_have_text("2")
    assert page.locator("[name=payload]").input_value() == '{"half": '
    assert page.evaluate("document.activeElement.name") == "payload"


def _badge(page: Page, queue: penstock.Queue) -> Locator:
    row = page.locator("tbody tr", has=page.get_by_role("link", name=queue.name, exact=True))
    return row.locator(".tag").first


def test_a_queue_that_fails_with_retries_left_has_a_badge(page: Page, queue: penstock.Queue) -> None:
    queue.send_many([b"one", b"two"])
    page.goto("/")
    row = page.locator("tbody tr", has=page.get_by_role("link", name=queue.name, exact=True))
    expect(row.locator("td[data-label=Waiting]")).to_have_text("2")
    queue.receive()[0].nak("busy", delay_seconds=600)
    expect(_badge(page, queue)).to_have_text("failing, retries left")
    expect(row.locator("td[data-label=Failed]")).not_to_have_text("0/s")
    expect(row.locator("td[data-label='Drains in']")).not_to_have_text("drained")
    queue.receive()[0].reject("no")
    expect(_badge(page, queue)).to_have_text("failing")
    # Nothing waits any more, but one message is held for its next attempt.
    expect(row.locator("td[data-label=Waiting]")).to_have_text("0")
    expect(row.locator("td[data-label='Drains in']")).to_have_text("–")


def test_a_queue_is_drained_when_nothing_is_left(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"one")
    page.goto(f"/queues/{queue.name}")
    cell = page.locator("#groups td[data-label='Drains in']")
    expect(page.locator("#groups td[data-label=Waiting]")).to_have_text("1")
    delivery = queue.receive()[0]
    expect(page.locator("#groups td[data-label='In progress']")).to_have_text("1")
    expect(cell).to_have_text("–")
    delivery.ack()
    expect(cell).to_have_text("drained")


def test_a_primary_group_that_nobody_reads_is_explained(page: Page, queue: penstock.Queue) -> None:
    queue.send_many([b"one", b"two"])
    for delivery in queue.receive(limit=2, group="billing"):
        delivery.ack()
    page.goto(f"/queues/{queue.name}")
    expect(page.locator(".banner")).to_contain_text("Nobody has ever received in group default")
    page.locator("[name=primary_group]").fill("billing")
    submit(page, page.get_by_role("button", name="Save the policy"))
    expect(page.locator("#groups tbody tr")).to_have_count(1)
    expect(page.locator(".banner")).to_have_count(0)
    assert queue.groups() == ["billing"]


def test_the_axis_of_a_chart_shows_the_time_it_says(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"one")
    page.goto(f"/queues/{queue.name}")
    charts = page.locator("#charts .uplot[data-seconds='300']")
    expect(charts).to_have_count(3)
    page.get_by_role("link", name="4 h").click()
    expect(page.locator("#charts .uplot[data-seconds='14400']")).to_have_count(3)
