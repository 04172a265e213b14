"""What browsers bring: cookies, pages of strangers, frames. The pages here stand for the dashboard's."""

from __future__ import annotations

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from penstock import AsyncStore
from penstock.servers.access import Right, Users, make_user
from penstock.servers.http import application
from penstock.servers.http.auth import COOKIE, identity_of, log_in, log_out, safe_next
from penstock.servers.http.bodies import form_of
from penstock.servers.http.router import Route, Router
from penstock.servers.http.server import HttpListener
from penstock.settings import HttpSettings
from tests.servers.hashes import older_hash
from tests.servers.http.api_client import Api, done, problem
from tests.servers.http.conftest import Serve

pytestmark = pytest.mark.anyio
# With characters that a random token never has, so that it cannot hold one of them by chance.
NAME, PASSWORD = "ann.lee", "p.w"


async def enter(request: Request) -> Response:
    fields = await form_of(request)
    return await log_in(request, fields["name"], fields["password"], RedirectResponse("/", 303))


async def leave(request: Request) -> Response:
    return log_out(request, RedirectResponse("/", 303))


async def token(request: Request) -> Response:
    return PlainTextResponse(identity_of(request).csrf)


async def press(request: Request) -> Response:
    return PlainTextResponse((await form_of(request)).get("what", "pressed"))


PAGES = [
    Route("POST", "/login", enter, is_open=True),
    Route("POST", "/logout", leave, Right.NOTHING),
    Route("GET", "/token", token, Right.NOTHING),
    Route("POST", "/press", press, Right.OPERATE),
]


@pytest.fixture
def users() -> Users:
    return Users([make_user(NAME, older_hash(PASSWORD), [], role="operator")])


@pytest.fixture
async def server(store: AsyncStore, users: Users, settings: HttpSettings, serve: Serve) -> HttpListener:
    app = application(store, users=users, settings=settings, dashboard=False)
    app.routes = Router([*app.routes.all, *PAGES])
    return await serve(app, settings)


@pytest.fixture
async def ann(client: httpx.AsyncClient) -> httpx.AsyncClient:
    """Logged in, as a browser."""
    response = await client.post("/login", data={"name": NAME, "password": PASSWORD})
    assert response.status_code == 303
    return client


async def csrf(client: httpx.AsyncClient) -> str:
    return (await client.get("/token")).text


async def test_session_cookie_holds_no_information(client: httpx.AsyncClient) -> None:
    response = await client.post("/login", data={"name": NAME, "password": PASSWORD})
    cookie = response.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    for word in ("HttpOnly", "SameSite=strict", "Path=/"):
        assert word in cookie
    assert NAME not in cookie
    assert PASSWORD not in cookie
    assert len(response.cookies[COOKIE]) >= 43, "256 bits"
    again = await client.post("/login", data={"name": NAME, "password": PASSWORD})
    assert again.cookies[COOKIE] != response.cookies[COOKIE]
    client.cookies.clear()
    client.cookies.set(COOKIE, response.cookies[COOKIE])
    problem(await client.get("/token"), 401)


async def test_failed_login_is_reported(client: httpx.AsyncClient) -> None:
    response = await client.post("/login", data={"name": NAME, "password": "wrong"})
    assert "wrong" in problem(response, 401)
    assert "set-cookie" not in response.headers


async def test_a_change_needs_the_token_of_the_page(ann: httpx.AsyncClient) -> None:
    assert "load the page again" in problem(await ann.post("/press", data={"what": "x"}), 403)
    assert (await ann.post("/press", data={"what": "x", "csrf": await csrf(ann)})).text == "x"
    assert (await ann.post("/press", headers={"x-csrf-token": await csrf(ann)}, data={})).text == "pressed"
    problem(await ann.post("/press", data={"csrf": "wrong"}), 403)
    problem(await Api(ann).ask("POST", "queues", "q", "messages", body={"payload": 1}), 403)
    sent = await Api(ann).ask(
        "POST", "queues", "q", "messages", body={"payload": 1}, headers={"x-csrf-token": await csrf(ann)}
    )
    done(sent)


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://evil.example"},
        {"origin": "null"},
    ],
)
async def test_a_page_of_another_site_changes_nothing(ann: httpx.AsyncClient, headers: dict[str, str]) -> None:
    body = {"csrf": await csrf(ann)}
    problem(await ann.post("/press", data=body, headers=headers), 403)
    sent = await ann.post("/api/v1/queues/q/messages", json={"payload": 1}, headers={**headers}, auth=(NAME, PASSWORD))
    problem(sent, 403)


async def test_same_origin_form_is_accepted(ann: httpx.AsyncClient) -> None:
    body = {"csrf": await csrf(ann)}
    assert (await ann.post("/press", data=body, headers={"sec-fetch-site": "same-origin"})).status_code == 200
    here = str(ann.base_url).rstrip("/")
    assert (await ann.post("/press", data=body, headers={"origin": here})).status_code == 200


async def test_a_session_ends_with_the_logout(ann: httpx.AsyncClient) -> None:
    cookie = ann.cookies[COOKIE]
    await ann.post("/logout", data={"csrf": await csrf(ann)})
    ann.cookies.clear()
    ann.cookies.set(COOKIE, cookie)
    problem(await ann.get("/token"), 401)


async def test_a_session_ends_with_the_password(ann: httpx.AsyncClient, users: Users) -> None:
    assert (await ann.get("/token")).status_code == 200
    users.replace([make_user(NAME, older_hash("new"), [], role="operator")])
    problem(await ann.get("/token"), 401)


@pytest.mark.parametrize("settings", [HttpSettings(port=0, session_seconds=0)])
async def test_a_session_ends_when_nobody_uses_it(ann: httpx.AsyncClient) -> None:
    problem(await ann.get("/token"), 401)


@pytest.mark.parametrize("settings", [HttpSettings(port=0, failed_logins_per_second=2)])
async def test_logins_are_limited(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.servers.login_rate_limit.WINDOW_SECONDS", 60)
    told = [await client.post("/login", data={"name": NAME, "password": f"guess {n}"}) for n in range(4)]
    assert [one.status_code for one in told][:2] == [401, 401]
    assert told[-1].status_code == 429


@pytest.mark.parametrize("path", ["/healthz", "/api/v1/queues", "/nowhere", "/api/v1/queues/%FF"])
async def test_every_answer_has_the_headers(client: httpx.AsyncClient, path: str) -> None:
    headers = (await client.get(path)).headers
    policy = headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["x-frame-options"] == "DENY"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers
    assert "server" not in headers


async def test_cross_origin_reads_are_not_allowed(client: httpx.AsyncClient) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST"}
    response = await client.options("/api/v1/queues", headers=asked)
    assert response.status_code == 405
    assert not [name for name in response.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("value", "goes"),
    [
        (None, "/app/"),
        ("/app/queues/a%2Fb?x=1", "/app/queues/a%2Fb?x=1"),
        ("https://evil.example/", "/app/"),
        ("//evil.example/", "/app/"),
        ("/\\evil.example", "/app/"),
        ("/app/\\evil", "/app/"),
        ("/app/\t/evil.example", "/app/"),
        ("/elsewhere", "/app/"),
        ("javascript:alert(1)", "/app/"),
    ],
)
def test_login_redirects_only_within_the_application(value: str | None, goes: str) -> None:
    request = Request({"type": "http", "root_path": "/app", "path": "/app/login", "headers": []})
    assert safe_next(request, value) == goes


@pytest.mark.parametrize("value", ["//evil.example/", "/\\evil.example"])
def test_login_redirects_only_within_the_application_at_the_root(value: str) -> None:
    request = Request({"type": "http", "root_path": "", "path": "/login", "headers": []})
    assert safe_next(request, value) == "/"
