"""Who may do what, for every operation there is; and what nobody may see."""

from __future__ import annotations

import asyncio
import base64

import httpx
import msgspec
import pytest

from penstock import AsyncStore
from penstock.servers.access import ROLES, Right, Role, User, Users, hash_token, make_token, make_user
from penstock.servers.http import application
from penstock.servers.http.api import ROUTES
from penstock.servers.http.server import HttpListener
from penstock.settings import HttpSettings
from tests.servers.hashes import older_hash
from tests.servers.http.api_client import Api, done, problem, waiting_for

pytestmark = pytest.mark.anyio
TOKENS = {role: make_token() for role in Role}
CLERK = make_token()
PASSWORD = "correct horse"
# What may be seen without saying who you are.
OPEN = {"/healthz", "/readyz"}


@pytest.fixture
def users() -> Users:
    members = [make_user(role.value, None, [], role=role, token_hash=hash_token(TOKENS[role])) for role in Role]
    clerk = make_user("clerk", None, ["orders-*"], ["send", "look", "operate"], token_hash=hash_token(CLERK))
    boss = make_user("boss", older_hash(PASSWORD), [], role="admin")
    return Users([*members, clerk, boss])


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def filled(pattern: str) -> str:
    """A path for the pattern, with names that are nobody's."""
    values = {"id": "019a8c3e-7b2d-7abc-8def-00000000ffff"}
    segments = [values.get(one[1:-1], "nothing") if one.startswith("{") else one for one in pattern.split("/")]
    return "/".join(segments)


ALL = [(route.method, route.pattern, route.right) for route in ROUTES]


@pytest.mark.parametrize(("method", "pattern", "right"), ALL)
async def test_an_operation_needs_its_right(client: httpx.AsyncClient, method: str, pattern: str, right: Right) -> None:
    path = filled(pattern)
    response = await client.request(method, path)
    problem(response, 401)
    assert response.headers["www-authenticate"].startswith("Bearer")
    for role, rights in ROLES.items():
        response = await client.request(method, path, headers=bearer(TOKENS[role]))
        if right is Right.NOTHING or right in rights:
            assert response.status_code not in (401, 403), response.text
        else:
            assert right.value in problem(response, 403)


def test_only_who_looks_may_be_an_observer() -> None:
    changing = [route for route in ROUTES if route.method not in ("GET", "HEAD")]
    assert len(changing) > 20
    assert all(route.right in (Right.SEND, Right.RECEIVE, Right.OPERATE, Right.MANAGE) for route in changing)
    assert not any(route.is_open for route in ROUTES)


async def test_nothing_is_open_but_health(server: HttpListener, client: httpx.AsyncClient, store: AsyncStore) -> None:
    app = application(store, users=[make_user("a", older_hash("x"), [], role="admin")], dashboard=False)
    assert {route.pattern for route in app.routes.all if route.is_open} == OPEN
    for path in sorted(OPEN):
        assert done(await client.get(path))["status"] in ("ok", "ready")
    problem(await client.get("/metrics"), 401)
    assert (await client.get("/metrics", headers=bearer(TOKENS[Role.OBSERVER]))).status_code == 200


async def test_a_user_has_its_queues_only(client: httpx.AsyncClient) -> None:
    boss, clerk = Api(client), Api(client)
    client.headers.update(bearer(TOKENS[Role.ADMIN]))
    await boss.send("secret", 1)
    await boss.send("orders-1", 1)
    rule = {"cron": "0 0 * * *", "queue": "secret", "payload": 1}
    done(await boss.ask("PUT", "schedules", "secret schedule", body=rule))
    done(await boss.ask("PUT", "queues", "secret", "consumers", "c1", body={}))
    client.headers.update(bearer(CLERK))
    assert [one["name"] for one in (await clerk.get("queues"))["queues"]] == ["orders-1"]
    assert (await clerk.get("schedules"))["schedules"] == []
    assert (await clerk.get("consumers"))["consumers"] == []
    there = problem(await clerk.ask("GET", "queues", "secret"), 404)
    not_there = problem(await clerk.ask("GET", "queues", "nosuch"), 404)
    assert there.replace("secret", "nosuch") == not_there, "a queue of others looks as if it were not there"
    problem(await clerk.ask("POST", "queues", "secret", "messages", body={"payload": 1}), 404)
    await clerk.send("orders-2", 1)
    there = problem(await clerk.ask("POST", "schedules", "secret schedule", "pause"), 404)
    not_there = problem(await clerk.ask("POST", "schedules", "secret schedulx", "pause"), 404)
    assert there.replace("schedule'", "schedulx'") == not_there
    assert "secret" not in (await client.get("/metrics")).text
    client.headers.update(bearer(TOKENS[Role.ADMIN]))
    assert "'secret'" in (await boss.ask("GET", "queues", "secrte")).text


async def test_a_schedule_must_not_reach_the_queues_of_others(
    store: AsyncStore, client: httpx.AsyncClient, users: Users
) -> None:
    token = make_token()
    users.replace([make_user("m", None, ["mine"], ["manage", "look"], token_hash=hash_token(token))])
    client.headers.update(bearer(token))
    await store.schedule("theirs", "0 0 * * *", "secret", b"x")
    api = Api(client)
    rule = {"cron": "0 0 * * *", "payload": 1}
    problem(await api.ask("PUT", "schedules", "s", body={**rule, "queue": "secret"}), 404)
    refused = problem(await api.ask("PUT", "schedules", "theirs", body={**rule, "queue": "mine"}), 404)
    assert refused == problem(await api.ask("GET", "schedules", "theirs"), 404), "the name of its queue is not told"
    problem(await api.ask("DELETE", "schedules", "theirs"), 404)
    done(await api.ask("PUT", "schedules", "s", body={**rule, "queue": "mine"}))
    assert [one.queue for one in await store.schedules()] == ["mine", "secret"]


# -- saying who you are ----------------------------------------------------------------------------------------------


async def test_a_name_and_a_password(client: httpx.AsyncClient) -> None:
    assert done(await client.get("/api/v1/me", auth=("boss", PASSWORD)))["name"] == "boss"
    for auth in (("boss", "wrong"), ("nobody", PASSWORD), ("operator", "")):
        assert "wrong" in problem(await client.get("/api/v1/me", auth=auth), 401)


@pytest.mark.parametrize(
    "value",
    ["Bearer", "Bearer x", "Basic", "Basic !!!", "Basic " + base64.b64encode(b"boss").decode(), "Digest a=b", "\xff"],
)
async def test_a_wrong_authorization_is_refused(client: httpx.AsyncClient, value: str) -> None:
    problem(await client.get("/api/v1/me", headers={b"authorization": value.encode("latin-1")}), 401)


async def test_a_right_taken_away_is_gone_with_the_next_request(client: httpx.AsyncClient, users: Users) -> None:
    client.headers.update(bearer(TOKENS[Role.ADMIN]))
    done(await client.get("/api/v1/queues"))
    users.replace([make_user("admin", None, [], ["send"], token_hash=hash_token(TOKENS[Role.ADMIN]))])
    problem(await client.get("/api/v1/queues"), 403)
    users.replace([])
    problem(await client.get("/api/v1/queues"), 401)


async def test_a_right_taken_away_while_waiting_hands_out_nothing(
    client: httpx.AsyncClient, users: Users, store: AsyncStore
) -> None:
    client.headers.update(bearer(TOKENS[Role.OPERATOR]))
    queue = await store.queue("q", paused=False)
    waiting = asyncio.create_task(client.post("/api/v1/queues/q/receive", json={"wait_seconds": 20}))
    await waiting_for(store, 1)
    users.replace([make_user("operator", None, [], role="observer", token_hash=hash_token(TOKENS[Role.OPERATOR]))])
    await queue.send(b"for others")
    assert "taken away" in problem(await waiting, 403)
    (delivery,) = await queue.receive(wait_seconds=10)
    assert delivery.attempt == 1


@pytest.mark.parametrize("settings", [HttpSettings(port=0, failed_logins_per_second=3)])
async def test_failed_logins_are_rate_limited(client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.servers.login_rate_limit.WINDOW_SECONDS", 60)
    guesses = [await client.get("/api/v1/me", headers=bearer(f"guess {number}")) for number in range(5)]
    assert [one.status_code for one in guesses[:3]] == [401, 401, 401]
    told = guesses[4]
    assert "too many" in problem(told, 429)
    assert told.headers["retry-after"] == "1"
    right = await client.get("/api/v1/me", headers=bearer(CLERK))
    assert right.status_code == 200, "a right token is not locked out by wrong ones of the same address"
    monkeypatch.setattr("penstock.servers.login_rate_limit.WINDOW_SECONDS", 0)
    assert (await client.get("/api/v1/me", headers=bearer(CLERK))).status_code == 200


async def test_secrets_are_in_no_answer(client: httpx.AsyncClient) -> None:
    client.headers.update(bearer(TOKENS[Role.ADMIN]))
    answers = [
        await client.get(path)
        for path in ("/api/v1/me", "/api/v1/queues", "/api/v1/openapi.json", "/metrics", "/nowhere")
    ]
    for answer in answers:
        assert TOKENS[Role.ADMIN] not in answer.text
        assert "sha256$" not in answer.text
        assert "scrypt$" not in answer.text


# -- where nobody has to -----------------------------------------------------------------------------------------------


class TestOpen:
    """Without users, everybody on this machine may do everything, and nobody else anything."""

    @pytest.fixture
    def users(self) -> Users:
        return Users([User("default", None, ("*",), frozenset(Right))])

    async def test_loopback_clients_need_no_login(self, client: httpx.AsyncClient) -> None:
        assert done(await client.get("/api/v1/me"))["role"] == "admin"

    async def test_remote_clients_are_refused_in_protected_mode(self, store: AsyncStore, users: Users) -> None:
        app = application(store, users=users, dashboard=False)
        for address, status in (("127.0.0.9", 200), ("::1", 200), ("::ffff:127.0.0.1", 200), ("192.0.2.7", 403)):
            transport = httpx.ASGITransport(app, client=(address, 5))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as elsewhere:
                response = await elsewhere.get("/api/v1/me")
                assert response.status_code == status, address
                if status == 403:
                    assert "protected mode" in problem(response, 403)

    @pytest.mark.parametrize("header", ["Forwarded", "X-Forwarded-For", "X-Real-IP"])
    async def test_forwarded_requests_are_not_treated_as_local(self, client: httpx.AsyncClient, header: str) -> None:
        problem(await client.get("/api/v1/me", headers={header: "127.0.0.1"}), 403)

    @pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", ""])
    async def test_unknown_host_names_are_refused(self, client: httpx.AsyncClient, host: str) -> None:
        assert "http.hosts" in problem(await client.get("/api/v1/me", headers={"host": host}), 421)

    @pytest.mark.parametrize("settings", [HttpSettings(port=0, hosts="queue.internal, other")])
    async def test_names_can_be_allowed(self, client: httpx.AsyncClient) -> None:
        done(await client.get("/api/v1/me", headers={"host": "queue.internal:4778"}))
        problem(await client.get("/api/v1/me", headers={"host": "third"}), 421)


async def test_joining_the_batch_of_another_queue_needs_the_right_to_send_there(client: httpx.AsyncClient) -> None:
    body = {"payload": 1, "batch": "nightly", "batch_queue": "secret"}
    headers = bearer(CLERK)
    for path, given in (("messages", body), ("messages/many", {"messages": [body]})):
        response = await client.post(f"/api/v1/queues/orders-1/{path}", json=given, headers=headers)
        problem(response, 404)
    raw = await client.post(
        "/api/v1/queues/orders-1/messages/raw",
        content=b"1",
        params={"batch": "nightly", "batch_queue": "secret"},
        headers=headers,
    )
    problem(raw, 404)
    lines = await client.post(
        "/api/v1/queues/orders-1/messages/stream",
        content=msgspec.json.encode(body) + b"\n",
        headers={**headers, "content-type": "application/x-ndjson"},
    )
    assert (lines.status_code, lines.json()["sent"]) == (207, 0)
    allowed = await client.post(
        "/api/v1/queues/orders-1/messages", json={**body, "batch_queue": "orders-2"}, headers=headers
    )
    assert allowed.status_code == 201
