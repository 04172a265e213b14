"""Pages change by themselves, and nothing changes under the hands of who types."""

from __future__ import annotations

from playwright.sync_api import Page, expect

import penstock


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
