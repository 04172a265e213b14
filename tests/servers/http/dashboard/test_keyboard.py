"""The keyboard is enough."""

from __future__ import annotations

from playwright.sync_api import Browser, Page, expect

import penstock
from tests.servers.http.dashboard.conftest import Served
from tests.servers.http.dashboard.page_log import close


def test_keys(page: Page, queue: penstock.Queue) -> None:
    queue.send_many([b"one", b"two"])
    page.goto(f"/search?queue={queue.name}")
    page.keyboard.press("j")
    first = page.evaluate("document.activeElement.textContent")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.textContent") != first
    page.keyboard.press("k")
    assert page.evaluate("document.activeElement.textContent") == first
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/messages/{first}")
    page.keyboard.press("?")
    expect(page.locator("dialog#help")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator("dialog#help")).not_to_be_visible()
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "find"
    page.keyboard.press("Escape")
    page.keyboard.press("g")
    page.keyboard.press("d")
    page.wait_for_url("**/dead")


def test_what_has_the_focus_can_be_seen(page: Page, queue: penstock.Queue) -> None:
    queue.send(b"one")
    page.goto(f"/queues/{queue.name}")
    for _ in range(12):
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid", page.evaluate("document.activeElement.outerHTML")


def test_the_theme_is_kept(page: Page) -> None:
    page.goto("/")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"
    page.keyboard.press("t")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
    page.goto("/dead")
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


def test_pages_work_without_scripts(browser: Browser, served: Served, queue: penstock.Queue) -> None:
    """Links, forms and confirmations are HTML; scripts only make them quicker."""
    queue.send(b"one")
    queue.receive()[0].reject("broken")
    context = browser.new_context(base_url=served.base, java_script_enabled=False)
    plain = context.new_page()
    plain.goto(f"/queues/{queue.name}/dead")
    plain.get_by_text("Redrive…").click()
    plain.get_by_role("button", name="Redrive 1").click()
    expect(plain.locator(".notice")).to_contain_text("1 message ready again")
    assert queue.stats(group="default").dead == 0
    close(context)
