"""Everything that can be wrong with a request gets a sentence that a person can act on, and changes nothing."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock import AsyncStore, StoreUnavailable
from penstock.servers.http.server import HttpListener
from penstock.settings import HttpSettings
from tests.servers.http.api_client import Api, problem

pytestmark = pytest.mark.anyio
JSON = {"content-type": "application/json"}
SEND = "/api/v1/queues/q/messages"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"payload": 1', "the body is not JSON: input data was truncated"),
        (b"{payload: 1}", "the body is not JSON: object keys must be strings"),
        (b"nope", "the body is not JSON: invalid character (byte 4)"),
        (b'{"payload": 1} x', "trailing"),
        (b'{"payload": "\xff"}', "not UTF-8"),
        (b'{"payload": NaN}', "is not JSON"),
        (b'{"payload": "\\ud800"}', "is not JSON"),
        (b'{"payload": ' + b"[" * 100_000, "nested too deeply"),
        (b"[" * 100_000, "the body"),
        (b"[]", "the body must be an object, not a list"),
        (b"", "is not JSON"),
        (b"{}", "exactly one of payload and payload_base64"),
        (b'{"payload": 1, "payload_base64": ""}', "exactly one of"),
        (b'{"payload_base64": "%%%"}', "is not base64"),
        (b'{"payload": 1, "priorty": 2}', "unknown field 'priorty'; did you mean 'priority'?"),
        (b'{"payload": 1, "priority": "high"}', "the body: priority must be a whole number, not 'high'"),
        (b'{"payload": 1, "priority": 1.5}', "whole number"),
        (b'{"payload": 1, "priority": -1}', "priority must be at least 0, not -1"),
        (b'{"payload": 1, "headers": {"a": 1}}', "headers[...] must be text, not a whole number"),
        (b'{"payload": 1, "id": "seven"}', "'seven'"),
        (b'{"payload": 1, "deadline_at": "tomorrow"}', "deadline_at must be a time with a zone such as"),
        (b'{"payload": 1, "deadline_at": "2026-11-16T10:00:00"}', "not '2026-11-16T10:00:00'"),
        (b'{"payload": 1, "ttl_seconds": 1e300}', "ttl_seconds must be at most "),
        (b'{"payload": 1, "content_type": ""}', "content_type is empty"),
        (b'{"payload": 1, "key": "a\\u0000"}', "control character"),
    ],
)
async def test_invalid_body_is_reported_with_place_and_value(
    client: httpx.AsyncClient, store: AsyncStore, body: bytes, told: str
) -> None:
    assert told in problem(await client.post(SEND, content=body, headers=JSON), 400)
    assert await store.queues() == []


@pytest.mark.parametrize(
    ("path", "body", "told"),
    [
        ("settle", {"group": "a", "settlements": []}, "unknown field 'group': it is a field of settlements[...]"),
        ("batches/b", {"end": {"abort": 1}}, "unknown field 'abort': it is a field of the body itself - at `$.end`"),
        ("batches/b", {"end": {"payload": 1, "priorty": 2}}, "unknown field 'priorty'; did you mean 'priority'?"),
        ("batches/b", {"abrt": {}}, "unknown field 'abrt'; did you mean 'abort'?"),
    ],
)
async def test_an_unknown_field_is_told_from_one_at_the_wrong_place(
    client: httpx.AsyncClient, path: str, body: dict[str, Any], told: str
) -> None:
    method = "POST" if path == "settle" else "PUT"
    assert told in problem(await client.request(method, f"/api/v1/queues/q/{path}", json=body), 400)


@pytest.mark.parametrize("path", ["queues/q/pause", "queues/q/flush", "queues/q/batches/b/start", "sweep"])
async def test_operation_without_body_refuses_fields(client: httpx.AsyncClient, api: Api, path: str) -> None:
    """What somebody meant with it would not happen."""
    await api.send("q", 1)
    response = await client.post(f"/api/v1/{path}", content=b'{"seconds": 5}', headers=JSON)
    assert "unknown field 'seconds': this call takes none" in problem(response, 400)
    problem(await client.post(f"/api/v1/{path}", content=b"[", headers=JSON), 400)
    assert (await api.get("queues", "q", "policy"))["policy"]["paused"] is False
    assert (await api.get("queues", "q", "stats"))["groups"]["default"]["available"] == 1
    for empty in (b"", b"{}"):
        assert (await client.post("/api/v1/queues/q/pause", content=empty, headers=JSON)).status_code == 200


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"edge": "middle"}, "edge must be one of start, end, not 'middle'"),
        ({"edge": "strat"}, "did you mean 'start'?"),
        ({"position": "x"}, "position must be a whole number, not 'x'"),
        ({}, "exactly one of position and time and edge"),
        ({"position": 1, "edge": "end"}, "exactly one of position and time and edge"),
    ],
)
async def test_invalid_seek_target_lists_the_valid_ones(api: Api, body: dict[str, Any], told: str) -> None:
    await api.send("q", 1)
    assert told in problem(await api.ask("POST", "queues", "q", "groups", "default", "seek", body=body), 400)


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("/api/v1/queues/q/peek?limti=1", "unknown parameter 'limti'; did you mean 'limit'?"),
        ("/api/v1/queues/q/peek?limit=many", "limit must be a whole number, not 'many'"),
        ("/api/v1/queues/q/peek?limit=0", "limit must be at least 1, not 0"),
        ("/api/v1/queues/q/peek?limit=1_0", "whole number"),
        ("/api/v1/queues/q/peek?limit=1&limit=2", "twice"),
        ("/api/v1/queues/q/peek?group=%FF", "not percent-encoded UTF-8"),
        ("/api/v1/queues/q/archive?outcome=sucess", "did you mean 'succeeded'?"),
        ("/api/v1/queues/q/dead_letters?before=yesterday", "`next` of the page before"),
        ("/api/v1/queues/q/messages/7", "must be a UUID"),
        ("/api/v1/queues/%FF", "not UTF-8"),
        ("/api/v1/queues/" + "x" * 256, "at most 255 bytes"),
        ("/api/v1/queues/a%0Ab/stats", "control character"),
    ],
)
async def test_invalid_path_or_query_is_reported(client: httpx.AsyncClient, api: Api, path: str, told: str) -> None:
    await api.send("q", 1)
    assert told in problem(await client.get(path), 400)


async def test_unknown_name_suggests_the_nearest(client: httpx.AsyncClient, api: Api) -> None:
    await api.send("orders", 1)
    assert "there is no queue 'order'; did you mean 'orders'?" in problem(await api.ask("GET", "queues", "order"), 404)
    for segments in (("stats",), ("peek",), ("archive",), ("dead_letters",), ("policy",), ("batches",), ("consumers",)):
        problem(await api.ask("GET", "queues", "nowhere", *segments), 404)
    for action in ("pause", "resume", "flush", "redrive", "purge", "settle"):
        body: dict[str, Any] = {"settlements": []} if action == "settle" else {}
        problem(await api.ask("POST", "queues", "nowhere", action, body=body), 404)
    assert "default" in problem(await api.ask("GET", "queues", "orders", "stats", params={"group": "defualt"}), 404)
    assert "default" in problem(await api.ask("GET", "queues", "orders", "leases", params={"group": "defualt"}), 404)
    told = problem(await api.ask("POST", "queues", "orders", "consumers", "nobody", "heartbeat", body={}), 409)
    assert "consumer 'nobody' of queue 'orders' is not registered" in told
    unknown = "019a8c3e-7b2d-7abc-8def-00000000ffff"
    assert unknown in problem(await api.ask("GET", "queues", "orders", "messages", unknown), 404)
    problem(await api.ask("POST", "queues", "orders", "messages", unknown, "ack", body={"token": 1}), 404)
    assert "never had" in problem(await api.ask("GET", "queues", "orders", "addresses", "a"), 404)
    problem(await api.ask("GET", "queues", "orders", "batches", "b"), 404)
    problem(await api.ask("GET", "schedules", "s"), 404)
    assert "/api/v1/nothing" in problem(await client.get("/api/v1/nothing"), 404)
    problem(await client.get("/api/v2/queues"), 404)
    assert [info["name"] for info in (await api.get("queues"))["queues"]] == ["orders"]


async def test_wrong_method_lists_the_allowed_ones(client: httpx.AsyncClient) -> None:
    response = await client.delete("/api/v1/queues/q/policy")
    assert "use GET, HEAD, PATCH" in problem(response, 405)
    assert response.headers["allow"] == "GET, HEAD, PATCH"
    assert (await client.head("/healthz")).status_code == 200


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_cross_site_form_content_types_are_refused(client: httpx.AsyncClient, kind: str) -> None:
    headers = {"content-type": kind} if kind else {}
    assert "application/json" in problem(await client.post(SEND, content=b'{"payload":1}', headers=headers), 415)


async def test_raw_send_refuses_a_form(client: httpx.AsyncClient) -> None:
    told = problem(await client.post(f"{SEND}/raw", data={"a": "b"}), 415)
    assert "Content-Type: application/octet-stream" in told


async def test_a_compressed_body_is_refused(client: httpx.AsyncClient) -> None:
    response = await client.post(SEND, content=b"\x1f\x8b", headers={**JSON, "content-encoding": "gzip"})
    assert "compressed" in problem(response, 415)


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("settings", [HttpSettings(port=0, body_bytes=1000, header_bytes=2000)])
async def test_oversized_body_is_refused(
    client: httpx.AsyncClient, server: HttpListener, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.servers.http.app.LINGER_SECONDS", 0.1)
    large = b'{"payload": "%b"}' % (b"x" * 1000)
    assert "1000 bytes" in problem(await client.post(SEND, content=large, headers=JSON), 413)

    async def chunks() -> Any:
        for _ in range(20):
            yield b"x" * 100

    assert "1000 bytes" in problem(await client.post(SEND, content=chunks(), headers=JSON), 413)
    reply = await raw(
        server, b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999999999\r\n\r\n" % SEND.encode()
    )
    assert reply.startswith(b"HTTP/1.1 413"), "answered before a byte of it came"
    long_line = {"content-type": "application/x-ndjson"}
    told = problem(await client.post(f"{SEND}/stream", content=b"x" * 1500, headers=long_line), 413)
    assert "line 1" in told
    reply = await raw(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: %b\r\n" % (b"x" * 3000))
    assert reply.startswith(b"HTTP/1.1 431")
    assert await store.queues() == []


async def test_payload_above_the_policy_limit_is_refused(api: Api) -> None:
    await api.ask("PATCH", "queues", "q", "policy", body={"max_payload_bytes": 10})
    response = await api.ask("POST", "queues", "q", "messages", body={"payload": "x" * 20})
    assert "at most 10 (max_payload_bytes)" in problem(response, 413)


@pytest.mark.parametrize("settings", [HttpSettings(port=0, request_seconds=0.2)])
@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET /healthz HTT",
        b"POST /api/v1/queues/q/messages HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 20\r\n\r\n{",
    ],
)
async def test_stalled_request_times_out(server: HttpListener, sent: bytes) -> None:
    reply = await raw(server, sent)
    assert reply.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("settings", [HttpSettings(port=0, clients=3)])
async def test_connections_are_limited(server: HttpListener, client: httpx.AsyncClient) -> None:
    links = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    assert (await raw(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")).startswith(b"HTTP/1.1 503")
    for _, writer in links:
        writer.close()
        await writer.wait_closed()
    async with asyncio.timeout(60):
        while not (await raw(server, HEALTH)).startswith(b"HTTP/1.1 200"):
            await asyncio.sleep(0.01)


HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /api/v1/sweep HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: abc\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 50,
        b"QADD q 60 x\r\n\r\n",
    ],
)
async def test_bytes_that_are_not_http_close_the_connection(server: HttpListener, request_: bytes) -> None:
    assert (await raw(server, request_)).startswith(b"HTTP/1.1 400")


async def raw(server: HttpListener, sent: bytes) -> bytes:
    """All that comes back until the server hangs up."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        writer.write(sent)
        async with asyncio.timeout(60):
            return await reader.read()
    finally:
        writer.close()


# -- the store -------------------------------------------------------------------------------------------------------


async def test_busy_store_answers_503_with_retry_after(
    api: Api, store: AsyncStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def busy(*_: object) -> None:
        raise StoreUnavailable("/var/secret/path.db is locked")

    monkeypatch.setattr(store.engine, "send", busy)
    response = await api.ask("POST", "queues", "q", "messages", body={"payload": 1})
    told = problem(response, 503)
    assert response.headers["retry-after"] == "1"
    assert "secret" not in told
    assert "trying again is safe" in told
    assert "/var/secret/path.db" in caplog.text


async def test_internal_error_shows_only_an_incident_number(
    client: httpx.AsyncClient, store: AsyncStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("canary")

    monkeypatch.setattr(store.engine, "queues", broken)
    response = await client.get("/api/v1/queues")
    told = problem(response, 500)
    assert "canary" not in response.text
    assert response.json()["incident"] in told
    assert response.json()["incident"] in caplog.text
    assert "canary" in caplog.text


@contextmanager
def failing_writes() -> Iterator[None]:
    """The system refuses to write beyond the first page of any file of this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_disk_error_does_not_reveal_the_path(api: Api, store: AsyncStore, tmp_path: Path) -> None:
    await api.send("q", 1)
    with failing_writes():
        failed = await api.client.post(SEND, json={"payload": 2})
    assert (failed.status_code, failed.json()["error"]) == (503, "DiskError")
    assert "disk" in failed.json()["detail"]
    assert str(tmp_path) not in failed.text
    await api.send("q", 3)


async def test_removed_file_error_does_not_reveal_the_path(api: Api, store: AsyncStore, tmp_path: Path) -> None:
    await api.send("q", 1)
    (tmp_path / "store.db").unlink()
    failed = await api.client.post(SEND, json={"payload": 2})
    assert (failed.status_code, failed.json()["error"]) == (503, "StoreUnavailable")
    assert str(tmp_path) not in failed.text
