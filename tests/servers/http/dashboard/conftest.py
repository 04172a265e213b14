"""A real server, a real store, and a real browser that reports everything that goes wrong on a page."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

import penstock
from tests.ports import LOOPBACK, free_port
from tests.servers.clients.processes import PenstockServer
from tests.servers.hashes import older_hash
from tests.servers.http.dashboard.page_log import Watched, close

FLAGS = (
    "--no-sandbox",
    "--headless",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
# Milliseconds. Generous, because the machine may be busy: what works is seen within a fraction of it.
PATIENCE = 120_000
expect.set_options(timeout=PATIENCE)
ROLES = ("observer", "operator", "admin")
_numbers = itertools.count(1)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One browser serves all tests here, so one worker runs them."""
    folder = Path(__file__).parent
    here = {path for path in {item.path for item in items} if folder in path.parents}
    for item in items:
        if item.path in here:
            item.add_marker(pytest.mark.xdist_group("dashboard"))


class Served(PenstockServer):
    """`penstock serve` with its HTTP door open."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.http_port = free_port()
        self.base = f"http://{LOOPBACK}:{self.http_port}"
        environment = {"PENSTOCK_HTTP_ENABLED": "true", "PENSTOCK_HTTP_PORT": str(self.http_port)}
        super().__init__(folder, *words, environment=environment)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """For the whole run, and open to everybody on this machine: each test uses queues of its own name."""
    with Served(tmp_path_factory.mktemp("dashboard")) as server:
        server.start()
        yield server


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """With a user for each role; the password is the name. `narrow` may look at queues of one name only."""
    folder = tmp_path_factory.mktemp("guarded")
    lines = []
    for name in ROLES:
        lines += [f"[users.{name}]", f'role = "{name}"', f'password_hash = "{older_hash(name)}"']
    lines += ["[users.narrow]", 'rights = ["look"]', 'queues = ["mine-*"]']
    lines += [f'password_hash = "{older_hash("narrow")}"']
    (folder / "penstock.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with Served(folder, "--config", str(folder / "penstock.toml")) as server:
        server.start()
        yield server


# Not longer than for this folder: while it is there, no other event loop can run in this process.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        yield playwright.chromium.launch(executable_path=program, args=list(FLAGS))


@pytest.fixture
def context(browser: Browser, served: Served) -> Iterator[BrowserContext]:
    opened = browser.new_context(base_url=served.base, viewport={"width": 1280, "height": 900}, color_scheme="light")
    opened.set_default_timeout(PATIENCE)
    yield opened
    close(opened)


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """What the page says to the console, throws or asks is wrong, whatever the test looks at."""
    opened = context.new_page()
    watched = Watched(opened)
    yield opened
    assert not watched.complaints


@pytest.fixture
def log_in(browser: Browser, guarded: Served) -> Iterator[Callable[[str], Page]]:
    """A page on which somebody has logged in to the guarded server."""
    contexts = []

    def enter(name: str) -> Page:
        contexts.append(browser.new_context(base_url=guarded.base))
        contexts[-1].set_default_timeout(PATIENCE)
        opened = contexts[-1].new_page()
        opened.goto("/")
        opened.get_by_label("Name").fill(name)
        opened.get_by_label("Password or token").fill(name)
        opened.get_by_role("button", name="Log in").click()
        opened.wait_for_selector("nav.side")
        return opened

    yield enter
    for one in contexts:
        close(one)


@pytest.fixture
def store(served: Served) -> Iterator[penstock.Store]:
    with penstock.connect(served.url) as opened:
        yield opened


@pytest.fixture
def queue(store: penstock.Store) -> penstock.Queue:
    """A queue that no other test uses."""
    return store.queue(f"queue-{next(_numbers)}")


@pytest.fixture
def http(served: Served) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=served.base, headers={"accept": "text/html"}, timeout=60) as client:
        yield client
