"""What a page complains about, and how to read numbers off it."""

from __future__ import annotations

import re

from playwright.sync_api import BrowserContext, ConsoleMessage, Dialog, Locator, Page


class Watched:
    """Everything on a page that should not have happened: errors, warnings, dialogs, broken security rules."""

    def __init__(self, page: Page) -> None:
        self.complaints: list[str] = []
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"thrown: {error}"))
        page.on("dialog", self._dismiss)

    def _hear(self, message: ConsoleMessage) -> None:
        # The browser itself notes every answer that is an error; tests that ask for one look at the page.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def _dismiss(self, dialog: Dialog) -> None:
        self.complaints.append(f"dialog: {dialog.message}")
        dialog.dismiss()


def submit(page: Page, button: Locator) -> None:
    """Until the page that answers is there: a click alone need not wait for it."""
    with page.expect_navigation():
        button.click()


def close(context: BrowserContext) -> None:
    """A click does not wait for the page it leads to, and a test that has seen what it wanted ends meanwhile. Chromium
    that is to close a page with a form on its way waits for ever, once in a few dozen times: each is brought to rest
    first."""
    for page in context.pages:
        page.goto("about:blank")
    context.close()


def number(text: str) -> int:
    """The number that a cell shows."""
    return int(re.sub(r"[^0-9-]", "", text) or "0")


def cells(page: Page, row: str) -> dict[str, str]:
    """The cells of a table's row by their label; `row` is what its heading begins with."""
    found: dict[str, str] = page.evaluate(
        """(name) => {
            const row = [...document.querySelectorAll("tbody tr")].find((one) =>
                (one.querySelector("th a") ?? one.querySelector("th"))?.textContent.trim() === name);
            return Object.fromEntries([...row.querySelectorAll("td[data-label]")].map((one) =>
                [one.dataset.label, one.textContent.trim()]));
        }""",
        row,
    )
    return found
