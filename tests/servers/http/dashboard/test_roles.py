"""Who may do what: buttons that are not for somebody are not there, and the server refuses all the same."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

import penstock
from penstock.servers.access import ROLES, Right, Role
from penstock.servers.http.dashboard import ROUTES
from penstock.servers.http.router import Route
from tests.servers.http.dashboard.conftest import Served
from tests.servers.http.dashboard.page_log import close

CHANGING = [route for route in ROUTES if route.method == "POST" and not route.is_open and route.pattern != "/logout"]
OPEN = {"/login", "/static/{path...}"}
# Values for the places in a pattern; nothing is called like that, so a right that is there ends in 404 or 400.
NOBODY = {"{queue}": "nobody", "{id}": "00000000-0000-7000-8000-000000000000", "{batch}": "none", "{schedule}": "none"}


def _path(route: Route) -> str:
    return re.sub(r"\{[^}]*\}", lambda place: NOBODY.get(place[0], "x"), route.pattern)


@pytest.fixture(scope="module")
def clients(guarded: Served) -> Iterator[dict[str, httpx.Client]]:
    """A client for each role, with a session of its own."""
    opened = {}
    for role in Role:
        opened[str(role)] = httpx.Client(base_url=guarded.base, headers={"accept": "text/html"}, timeout=60)
        answer = opened[str(role)].post("/login", data={"name": str(role), "secret": str(role)})
        assert answer.status_code == 303
    yield opened
    for client in opened.values():
        client.close()


def _csrf(client: httpx.Client, path: str = "/queues/ours") -> str:
    found = re.search(r'name="csrf" value="([^"]+)"', client.get(path).text)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module", autouse=True)
def ours(guarded: Served) -> str:
    with penstock.connect(guarded.url) as store:
        queue = store.queue("ours")
        message_id = queue.send({"n": 1})
        queue.send({"n": 2})
        queue.receive(consumer="c1")[0].reject("no")
        queue.receive(consumer="c2", lease_seconds=900)
        queue.register("c2", heartbeat_seconds=900)
        queue.batch("b").send(b"x")
        store.schedule("s", "0 3 * * *", "ours", b"x")
        store.queue("mine-1").send(b"x")
    return message_id


# What each action needs, as the API asks for the same.
RIGHTS = {
    "/queues/{queue}/pause": Right.OPERATE,
    "/queues/{queue}/resume": Right.OPERATE,
    "/queues/{queue}/messages": Right.SEND,
    "/queues/{queue}/policy": Right.MANAGE,
    "/queues/{queue}/flush": Right.MANAGE,
    "/queues/{queue}/seek": Right.MANAGE,
    "/queues/{queue}/delete": Right.MANAGE,
    "/queues/{queue}/messages/{id}/settle": Right.RECEIVE,
    "/queues/{queue}/messages/{id}/redrive": Right.OPERATE,
    "/queues/{queue}/messages/{id}/purge": Right.MANAGE,
    "/queues/{queue}/dead/redrive": Right.OPERATE,
    "/queues/{queue}/dead/purge": Right.MANAGE,
    "/queues/{queue}/batches/{batch}/start": Right.OPERATE,
    "/queues/{queue}/batches/{batch}/cancel": Right.OPERATE,
    "/schedules": Right.MANAGE,
    "/schedules/{schedule}": Right.MANAGE,
    "/schedules/{schedule}/remove": Right.MANAGE,
    "/schedules/{schedule}/run": Right.OPERATE,
    "/schedules/{schedule}/pause": Right.OPERATE,
    "/schedules/{schedule}/resume": Right.OPERATE,
    "/queues/{queue}/consumers/release": Right.RECEIVE,
}


def test_every_action_needs_its_right() -> None:
    assert {route.pattern: route.right for route in CHANGING} == RIGHTS
    assert {route.pattern for route in ROUTES if route.is_open} == OPEN
    assert all(route.right is not Right.NOTHING for route in ROUTES if not route.is_open and route.pattern != "/logout")


@pytest.mark.parametrize("role", Role)
def test_the_server_refuses_what_a_role_may_not_do(role: Role, clients: dict[str, httpx.Client]) -> None:
    client = clients[str(role)]
    token = _csrf(client)
    for route in CHANGING:
        answer = client.post(_path(route), data={"csrf": token})
        may = RIGHTS[route.pattern] in ROLES[role]
        # A queue that does not exist gives 404 to those who may; sending makes it, with an empty payload.
        assert (answer.status_code == 403) is not may, f"{role} {route}: {answer.status_code}"


@pytest.mark.parametrize("role", Role)
def test_without_the_form_s_token_nothing_is_done(role: Role, clients: dict[str, httpx.Client]) -> None:
    for route in CHANGING:
        assert clients[str(role)].post(_path(route), data={}).status_code == 403


def test_unauthenticated_visitors_are_redirected_to_the_login(guarded: Served) -> None:
    with httpx.Client(base_url=guarded.base, headers={"accept": "text/html"}, timeout=60) as stranger:
        for route in ROUTES:
            if route.is_open:
                continue
            answer = stranger.request(route.method, _path(route))
            expected = 303 if route.method == "GET" else 401
            assert answer.status_code == expected, f"{route}: {answer.status_code}"
            if expected == 303:
                assert answer.headers["location"].startswith("/login?next=")


def test_an_observer_sees_everything_and_no_buttons(log_in: Callable[[str], Page], ours: str) -> None:
    page = log_in("observer")
    for path in (
        "/queues/ours",
        f"/queues/ours/messages/{ours}",
        "/queues/ours/messages",
        "/queues/ours/batches/b",
        "/queues/ours/dead",
        "/batches",
        "/schedules",
        "/consumers",
    ):
        page.goto(path)
        assert page.locator("main form[method=post]").count() == 0, path
        assert (
            page.get_by_text(re.compile("Redrive…|Purge…|Pause|Release…|Cancel…|Run now|Edit|Remove…|Delete")).count()
            == 0
        ), path
    assert page.goto("/queues/ours").text().count("max_retries") >= 1  # type: ignore[union-attr]
    assert page.locator(".policy output").count() > 10


def test_an_operator_works_but_does_not_manage(log_in: Callable[[str], Page], ours: str) -> None:
    page = log_in("operator")
    page.goto("/queues/ours")
    assert page.get_by_role("button", name="Pause").count() == 1
    assert page.get_by_text("Flush").count() == 0
    assert page.get_by_role("button", name="Save the policy").count() == 0
    page.goto("/schedules")
    assert page.get_by_role("button", name="Run now").count() == 1
    assert page.get_by_text(re.compile("Edit|Remove…|Add a schedule")).count() == 0
    page.goto("/queues/ours/dead")
    assert page.get_by_text("Redrive…").count() == 1
    assert page.get_by_text("Purge…").count() == 0


def test_queues_without_the_right_are_hidden(log_in: Callable[[str], Page]) -> None:
    page = log_in("narrow")
    page.goto("/")
    page.get_by_role("link", name="mine-1").wait_for()
    for path in ("/", "/dead", "/batches", "/schedules", "/consumers", "/search", "/search?q=ours"):
        page.goto(path)
        assert page.locator("main").get_by_text("ours", exact=True).count() == 0, path
    for path in ("/queues/ours", "/queues/ours/messages", "/queues/ours/batches/b"):
        answer = page.goto(path)
        assert answer is not None
        assert answer.status == 404


def test_a_wrong_password_says_so_and_the_right_one_goes_on(browser_page: Page) -> None:
    page = browser_page
    page.goto("/queues/ours")
    page.get_by_label("Name").fill("admin")
    page.get_by_label("Password or token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.locator("main")).to_contain_text("the name or the password is wrong")
    page.get_by_label("Password or token").fill("admin")
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url("**/queues/ours")
    page.get_by_role("button", name="Log out").click()
    page.wait_for_url("**/login")


@pytest.fixture
def browser_page(browser: Browser, guarded: Served) -> Iterator[Page]:
    context = browser.new_context(base_url=guarded.base)
    yield context.new_page()
    close(context)
