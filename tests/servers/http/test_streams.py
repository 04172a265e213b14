"""Many messages as lines of one body."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from uuid import UUID

import httpx
import msgspec
import pytest

from penstock import AsyncStore, StoreUnavailable
from tests.servers.http.api_client import Api, done, problem

pytestmark = pytest.mark.anyio
PATH = "/api/v1/queues/q/messages/stream"
LINES = {"content-type": "application/x-ndjson"}


async def test_every_line_is_a_message(client: httpx.AsyncClient, api: Api) -> None:
    body = b"".join(b'{"payload": %d, "priority": 1}\r\n\n' % number for number in range(1234))
    report = done(await client.post(PATH, content=body.rstrip(), headers=LINES))
    assert report == {"lines": 1234, "sent": 1234, "failed": 0, "errors": []}
    payloads = [one["payload"] for one in await api.receive("q", limit=1000)]
    assert payloads == list(range(1000))


async def test_invalid_lines_are_reported_and_the_others_sent(client: httpx.AsyncClient, api: Api) -> None:
    await api.send("q", "there", address="taken")
    lines = [
        b'{"payload": 1}',
        b"{oops",
        b'{"payload": 3, "adress": "x"}',
        b'{"payload": 4, "address": "taken"}',
        b"",
        b'{"payload": 6}',
        b'{"priority": 6}',
    ]
    response = await client.post(PATH, content=b"\n".join(lines), headers=LINES)
    assert response.status_code == 207
    report = response.json()
    assert (report["lines"], report["sent"], report["failed"]) == (6, 2, 4)
    told = {one["line"]: (one["error"], one["detail"]) for one in report["errors"]}
    assert sorted(told) == [2, 3, 4, 7]
    assert told[2][0] == "MalformedJson"
    assert "line 3" in told[3][1]
    assert "did you mean 'address'" in told[3][1]
    assert told[4][0] == "DuplicateAddress"
    assert sorted(str(one["payload"]) for one in await api.receive("q", limit=9)) == ["1", "6", "there"]


async def test_a_stream_can_be_sent_again(client: httpx.AsyncClient, api: Api) -> None:
    body = b"\n".join(b'{"payload": %d, "id": "%b"}' % (n, str(UUID(int=n, version=4)).encode()) for n in range(50))
    for _ in range(2):
        assert done(await client.post(PATH, content=body, headers=LINES))["sent"] == 50
    assert len(await api.receive("q", limit=100)) == 50


async def test_a_long_stream_needs_little_memory(client: httpx.AsyncClient, store: AsyncStore) -> None:
    line = msgspec.json.encode({"payload": "x" * 1000}) + b"\n"

    async def lines() -> AsyncIterator[bytes]:
        for _ in range(80):
            yield line * 100

    await client.post(PATH, content=line, headers=LINES)
    tracemalloc.start()
    try:
        report = done(await client.post(PATH, content=lines(), headers=LINES))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert report["sent"] == 8_000
    assert most < 5 << 20, f"{most} bytes for a body of {8_000 * len(line)}"
    assert (await (await store.queue("q")).stats(group="default")).available == 8_001


async def test_interrupted_stream_reports_how_many_were_sent(
    client: httpx.AsyncClient, store: AsyncStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    send, calls = store.engine.send, []

    def failing(*arguments: object) -> object:
        calls.append(arguments)
        if len(calls) == 2:
            raise StoreUnavailable("gone")
        return send(*arguments)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(store.engine, "send", failing)
    body = b'{"payload": 1}\n' * 1500
    response = await client.post(PATH, content=body, headers=LINES)
    assert "500 messages were sent before" in problem(response, 503)
    assert response.json()["sent"] == 500


async def test_other_bodies_are_refused(client: httpx.AsyncClient) -> None:
    problem(await client.post(PATH, content=b"{}", headers={"content-type": "text/plain"}), 415)
    assert done(await client.post(PATH, content=b"", headers=LINES))["lines"] == 0
