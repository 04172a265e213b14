"""Every page opens, in both themes and on a phone, without a complaint and within the width of the screen."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize

import penstock
from penstock.client.pipeline import LakeStatus, PipelineRun, ReportStatus, note_lake, note_report, note_run
from tests.servers.http.dashboard.conftest import PATIENCE, Served
from tests.servers.http.dashboard.page_log import Watched, close

PHONE, SCREEN = ViewportSize(width=375, height=812), ViewportSize(width=1280, height=900)
# The ground of a page in each theme, as the style sheet has it.
GROUNDS: dict[Literal["light", "dark"], str] = {"light": "rgb(246, 247, 249)", "dark": "rgb(13, 19, 25)"}
FITS = "document.documentElement.scrollWidth <= innerWidth"
CONTRASTS = (
    "/",
    "/queues/sights",
    "/queues/sights/dead",
    "/batches",
    "/search?queue=sights",
    "/schedules",
    "/pipeline",
)


@pytest.fixture(scope="module")
def paths(served: Served) -> dict[str, str]:
    """A store with something on every page, and the heading that each page should have."""
    with penstock.connect(served.url) as store:
        queue = store.queue("sights", max_retries=0)
        ids = queue.send_many([{"sight": number} for number in range(30)])
        queue.receive(limit=3, consumer="reader")[0].reject("HTTP 503 after 17 ms")
        queue.receive(limit=2, group="billing")
        queue.register("worker-1", heartbeat_seconds=600)
        queue.batch("tour").send_many([{"stop": 1}, {"stop": 2}])
        store.schedule("daily", "0 3 * * *", "sights", {"kind": "daily"}, timezone="America/Argentina/ComodRivadavia")
        _note_pipeline(store)
    return {
        "/": "Overview",
        "/queues/sights": "sights",
        "/queues/sights?range=long&group=billing": "sights",
        f"/queues/sights/messages/{ids[0]}": ids[0],
        "/queues/sights/messages": "sights",
        "/queues/sights/messages?state=held": "sights",
        "/queues/sights/messages?state=ready&group=billing": "sights",
        "/queues/sights/messages?state=rejected": "sights",
        "/queues/sights/messages?state=failed": "sights",
        "/queues/sights/batches/tour": "tour",
        "/queues/sights/delete": "Delete the queue",
        "/schedules/daily": "daily",
        "/search": "Search",
        "/search?queue=sights": "Search",
        "/search?queue=sights&outcome=rejected": "Search",
        "/search?q=tour": "Search",
        "/dead": "Dead letters",
        "/queues/sights/dead": "sights",
        "/batches": "Batches",
        "/schedules": "Schedules",
        "/consumers": "Consumers",
        "/pipeline": "Pipeline",
        "/docs": "API",
        "/login": "Log in",
    }


def _note_pipeline(store: penstock.Store) -> None:
    """As the pipeline itself does, with words that are long."""
    engine, now, long = store.engine, datetime.now(UTC), "/srv/" + "warehouse-" * 12
    note_run(engine, PipelineRun("archive", now, 3.5, False, {}, f"there is no lake at {long}"))
    note_lake(engine, "main", LakeStatus(long, now, 3, 14, 1 << 30))
    note_report(engine, ReportStatus(f"{long}/report.html", now, ["3 messages of sights failed.", "x" * 200]))


@pytest.fixture
def phone(browser: Browser, served: Served) -> Iterator[Page]:
    context = browser.new_context(base_url=served.base, viewport=PHONE, color_scheme="light")
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    close(context)


def test_every_page_opens(phone: Page, paths: dict[str, str]) -> None:
    """Opened on a phone, then on a wide screen, in both themes."""
    watched = Watched(phone)
    for path, heading in paths.items():
        phone.set_viewport_size(PHONE)
        answer = phone.goto(path)
        assert answer is not None
        assert answer.status == 200, path
        assert phone.locator("h1").inner_text() == heading, path
        assert phone.evaluate(FITS), f"{path} is too wide for a phone"
        phone.set_viewport_size(SCREEN)
        phone.wait_for_function(FITS)
        for theme, ground in GROUNDS.items():
            phone.emulate_media(color_scheme=theme)
            assert phone.evaluate("getComputedStyle(document.body).backgroundColor") == ground, path
        assert not watched.complaints, path


def test_charts_are_drawn(page: Page, paths: dict[str, str]) -> None:
    page.goto("/queues/sights")
    page.wait_for_selector("#charts .uplot canvas")
    assert page.locator("#charts .uplot").count() == 3


@pytest.mark.parametrize(("theme", "size"), [("light", SCREEN), ("dark", SCREEN), ("light", PHONE)])
def test_text_has_enough_contrast(
    page: Page, paths: dict[str, str], theme: Literal["light", "dark"], size: ViewportSize
) -> None:
    """As WCAG AA asks: 4.5 to 1, for everything that has text of its own."""
    page.emulate_media(color_scheme=theme)
    page.set_viewport_size(size)
    for path in CONTRASTS:
        page.goto(path)
        assert page.evaluate(FAINT) == [], path


FAINT = """() => {
    const channels = (text) => text.match(/[0-9.]+/g).map(Number);
    const light = (rgb) => {
        const [r, g, b] = rgb.slice(0, 3).map((one) => one / 255)
            .map((one) => one <= 0.03928 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const ground = (element) => {
        for (let one = element; one; one = one.parentElement) {
            const rgba = channels(getComputedStyle(one).backgroundColor);
            if (rgba.length === 3 || rgba[3] === 1) return rgba;
        }
        return [255, 255, 255];
    };
    const faint = [];
    for (const element of document.querySelectorAll("main *, nav *, header *")) {
        const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
        if (!own || !element.checkVisibility() || element.closest("svg, .sr, select")) continue;
        const [a, b] = [light(channels(getComputedStyle(element).color)), light(ground(element))].sort((x, y) => y - x);
        const ratio = (a + 0.05) / (b + 0.05);
        const about = `${element.className || element.tagName}: ${element.textContent.trim().slice(0, 20)}`;
        if (ratio < 4.5) faint.push(`${about} ${ratio.toFixed(2)}`);
    }
    return [...new Set(faint)];
}"""
