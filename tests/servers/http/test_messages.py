"""Sending and looking: what goes in is what can be read back."""

from __future__ import annotations

import base64
import uuid
from datetime import UTC, datetime

import httpx
import pytest

from penstock import AsyncStore
from tests.servers.http.api_client import Api, done, problem

pytestmark = pytest.mark.anyio
BIG = 9007199254740993000001
NAMES = ["a/b", "..", "a..b", "50%", "%2F", "übergröße ☕", "a b?c#d&e", "'; drop table x; --", "<script>", "x" * 255]


async def test_a_message_goes_in_and_comes_out(api: Api, store: AsyncStore) -> None:
    sent = await api.send("orders", {"order": 7}, priority=3, headers={"trace": "t1"}, key="k", created_by="shop")
    found = await api.get("queues", "orders", "messages", sent)
    assert found["payload"] == {"order": 7}
    assert found["content_type"] == "application/json"
    assert (found["priority"], found["headers"], found["key"], found["created_by"]) == (3, {"trace": "t1"}, "k", "shop")
    assert (await (await store.queue("orders")).find(sent)).json() == {"order": 7}
    (peeked,) = (await api.get("queues", "orders", "peek"))["messages"]
    assert peeked == found


@pytest.mark.parametrize("name", NAMES)
async def test_any_name_works_in_a_path(api: Api, name: str, store: AsyncStore) -> None:
    sent = await api.send(name, 1)
    assert (await api.get("queues", name, "messages", sent))["queue"] == name
    assert [info.name for info in await store.queues()] == [name]


async def test_json_stays_exactly_as_it_was_written(client: httpx.AsyncClient, api: Api, store: AsyncStore) -> None:
    text = b'{ "big": %d,  "twice": 1, "twice": 2, "e": 1E400 }' % BIG
    path = "/api/v1/queues/q/messages"
    body = b'{"payload": %b}' % text
    refused = await client.post(path, content=body, headers={"content-type": "application/json"})
    assert "is not JSON" in problem(refused, 400), "a number that nobody can read"
    body = body.replace(b"1E400", b"1E40")
    sent = done(await client.post(path, content=body, headers={"content-type": "application/json"}))["id"]
    assert (await (await store.queue("q")).find(sent)).payload == text.replace(b"1E400", b"1E40")
    (delivery,) = await api.receive("q")
    assert delivery["payload"]["big"] == BIG


async def test_bytes_travel_as_base64(api: Api) -> None:
    content = bytes(range(256))
    path = ("queues", "q", "messages")
    encoded = base64.b64encode(content).decode()
    sent = (await api.post(*path, payload_base64=encoded, content_type="image/png"))["id"]
    found = await api.get(*path, sent)
    assert found["content_type"] == "image/png"
    assert base64.b64decode(found["payload_base64"]) == content
    assert "payload" not in found


async def test_a_payload_that_only_claims_to_be_json_is_given_as_base64(api: Api) -> None:
    path = ("queues", "q", "messages")
    lie = base64.b64encode(b"{oops").decode()
    sent = (await api.post(*path, payload_base64=lie, content_type="application/json"))["id"]
    assert (await api.get(*path, sent))["payload_base64"] == lie


async def test_raw_body_is_the_payload(client: httpx.AsyncClient, api: Api) -> None:
    content = b"\x00\xff<script>"
    response = await client.post(
        "/api/v1/queues/q/messages/raw?priority=2&key=k",
        content=content,
        headers={"content-type": "text/html", "Penstock-Header-Trace": "t7"},
    )
    sent = done(response)["id"]
    found = await api.get("queues", "q", "messages", sent)
    assert (found["priority"], found["key"], found["headers"]) == (2, "k", {"trace": "t7"})
    assert found["content_type"] == "text/html"
    raw = await client.get(f"/api/v1/queues/q/messages/{sent}/payload")
    assert raw.content == content
    assert raw.headers["content-type"] == "application/octet-stream", "a browser must not show it"
    assert raw.headers["content-disposition"].startswith("attachment")


async def test_the_same_id_is_the_same_send(api: Api) -> None:
    chosen = str(uuid.uuid4())
    assert [await api.send("q", number, id=chosen) for number in (1, 2)] == [chosen, chosen]
    assert [one["payload"] for one in await api.receive("q", limit=10)] == [1]


async def test_send_many_is_all_or_none(api: Api) -> None:
    path = ("queues", "q", "messages", "many")
    ids = (await api.post(*path, messages=[{"payload": number} for number in range(3)]))["ids"]
    assert len(set(ids)) == 3
    refused = await api.ask("POST", *path, body={"messages": [{"payload": 3}, {"payload": 4, "priority": -1}]})
    assert "messages[1].priority must be at least 0, not -1" in problem(refused, 400)
    await api.post("queues", "q", "messages", payload=1, address="a")
    twice = {"messages": [{"payload": 5}, {"payload": 6, "address": "a"}]}
    assert "address" in problem(await api.ask("POST", *path, body=twice), 409)
    assert len(await api.receive("q", limit=10)) == 4


async def test_times_of_a_message(api: Api) -> None:
    deadline = "2031-05-06T07:08:09Z"
    sent = await api.send("q", 1, delay_seconds=60, ttl_seconds=600, deadline_at=deadline)
    found = await api.get("queues", "q", "messages", sent)
    created = datetime.fromisoformat(found["created_at"])
    assert (datetime.fromisoformat(found["available_at"]) - created).total_seconds() == pytest.approx(60)
    assert datetime.fromisoformat(found["deadline_at"]) == datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    assert found["position"] is None
    assert await api.receive("q") == []
    explained = await api.get("queues", "q", "messages", sent, "explain")
    assert explained["state"] == "held"


async def test_duplicate_address_names_the_existing_message(api: Api) -> None:
    sent = await api.send("q", 1, address="home")
    response = await api.ask("POST", "queues", "q", "messages", body={"payload": 2, "address": "home"})
    assert "home" in problem(response, 409)
    assert response.json()["existing_id"] == sent


async def test_audit_archive_and_address_tell_how_it_ended(api: Api) -> None:
    sent = await api.send("q", {"n": 1}, address="home")
    assert (await api.get("queues", "q", "addresses", "home"))["outcome"] is None
    (delivery,) = await api.receive("q", consumer="c7")
    done(await api.settle(delivery, "ack", reason="all good"))
    assert await api.get("queues", "q", "addresses", "home") == {
        "id": sent,
        "outcome": "succeeded",
        "reason": "all good",
        "code": None,
    }
    entries = (await api.get("queues", "q", "messages", sent, "audit"))["entries"]
    assert [(one["event"], one["by"]) for one in entries] == [("send", "system"), ("receive", "c7"), ("ack", "c7")]
    (archived,) = (await api.get("queues", "q", "archive", outcome="succeeded"))["archived"]
    assert archived["message"]["payload"] == {"n": 1}
    assert (await api.get("queues", "q", "archive", outcome="failed"))["archived"] == []
