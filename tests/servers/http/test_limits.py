"""How much one client may take: connections, time, and places to watch from."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from penstock import AsyncStore
from penstock.servers.access import Users, hash_token, make_user
from penstock.servers.http import application
from penstock.servers.http.dashboard import history
from penstock.servers.http.server import HttpListener
from penstock.settings import HttpSettings
from tests.servers.http.api_client import problem
from tests.servers.http.conftest import Serve

pytestmark = pytest.mark.anyio
TOKENS = {"ann": "a token for ann alone", "ben": "a token for ben alone"}
ME = b"GET /api/v1/me HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %b\r\n\r\n"
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Link:
    """A connection that stays open, byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: bytes) -> bytes:
        """The head of the answer and its body."""
        self.writer.write(request)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next(line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:"))
        return head + await self.reader.readexactly(int(length.split(b":")[1]))

    async def status(self, request: bytes) -> int:
        return int((await self.ask(request)).split(b" ", 2)[1])


Open = Callable[..., Any]


@pytest.fixture
async def dial(server: HttpListener) -> AsyncIterator[Open]:
    opened: list[Link] = []

    async def begin(address: str = "127.0.0.1") -> Link:
        link = Link(*await asyncio.open_connection("127.0.0.1", server.port, local_addr=(address, 0)))
        opened.append(link)
        return link

    async with asyncio.timeout(60):
        yield begin
    for link in opened:
        link.writer.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():
            await asyncio.sleep(0.005)


class TestOfUsers:
    @pytest.fixture
    def users(self) -> Users:
        return Users(
            [make_user(name, None, ["*"], role="admin", token_hash=hash_token(TOKENS[name])) for name in TOKENS]
        )

    @pytest.fixture
    def settings(self) -> HttpSettings:
        return HttpSettings(port=0, clients_per_user=2)

    async def test_connections_per_user_are_limited(self, server: HttpListener, dial: Open) -> None:
        ann, ben = (ME % token.encode() for token in TOKENS.values())
        links = [await dial() for _ in range(3)]
        assert [await link.status(ann) for link in links] == [200, 200, 429]
        told = await (await dial()).ask(ann)
        assert b"user 'ann' has 2 connections already (the setting http.clients_per_user)" in told
        assert b"connection: close" in told
        assert await links[0].status(ann) == 200, "those that are there go on"
        assert await (await dial()).status(ben) == 200
        # A connection belongs to who used it last: a proxy carries requests of several.
        assert await links[0].status(ben) == 200
        third = await dial()
        assert await third.status(ann) == 200
        links[1].writer.close()
        await until(lambda: server.limits.by_user["ann"] == 1)
        assert await (await dial()).status(ann) == 200
        assert await (await dial()).status(HEALTH) == 200, "who has not said who they are is not counted"

    async def test_closed_connections_leave_no_counts(self, server: HttpListener, dial: Open) -> None:
        links = [await dial() for _ in range(2)]
        for link in links:
            await link.ask(ME % TOKENS["ann"].encode())
            link.writer.close()
        await until(lambda: server.limits.count == 0)
        assert not server.limits.by_user
        assert not server.limits.by_address


@pytest.mark.parametrize("settings", [HttpSettings(port=0, clients_per_address=2)])
async def test_connections_per_address_are_limited(dial: Open) -> None:
    here = [await dial() for _ in range(2)]
    assert [await link.status(HEALTH) for link in here] == [200, 200]
    refused = await (await dial()).reader.read()
    assert refused.startswith(b"HTTP/1.1 503")
    assert b"http.clients_per_address" in refused
    assert await (await dial("127.0.0.2")).status(HEALTH) == 200


SEND = b"POST /api/v1/queues/q/messages%b HTTP/1.1\r\nHost: localhost\r\nContent-Type: %b\r\n%b\r\n\r\n"


@pytest.mark.parametrize("settings", [HttpSettings(port=0, request_seconds=1)])
async def test_stalled_body_times_out(dial: Open, store: AsyncStore) -> None:
    """Byte by byte a request would last for ever; a stream of lines may."""
    slow, stream = await dial(), await dial()
    slow.writer.write(SEND % (b"", b"application/json", b"Content-Length: 1000"))
    stream.writer.write(SEND % (b"/stream", b"application/x-ndjson", b"Transfer-Encoding: chunked"))
    answer = asyncio.ensure_future(slow.reader.read())
    line = b'{"payload": 1}\n'
    lines = 0
    while not answer.done() or lines < 16:
        stream.writer.write(b"%x\r\n%b\r\n" % (len(line), line))
        lines += 1
        with contextlib.suppress(ConnectionError):
            slow.writer.write(b" ")
        await asyncio.sleep(0.1)
    assert b"408" in answer.result().split(b"\r\n")[0]
    assert b"the body did not go on for 1 seconds" in answer.result()
    assert b'"sent":%d' % lines in await stream.ask(b"0\r\n\r\n")


@pytest.mark.parametrize("settings", [HttpSettings(port=0, request_seconds=0.3)])
async def test_client_that_reads_no_response_is_disconnected(
    server: HttpListener, dial: Open, store: AsyncStore
) -> None:
    message_id = await (await store.queue("q")).send(b"x" * (16 << 20))
    link = await dial()
    link.writer.write(b"GET /api/v1/queues/q/messages/%b/payload HTTP/1.1\r\n" % message_id.encode())
    link.writer.write(b"Host: localhost\r\n\r\n")
    # Nothing is read here, so the answer does not fit into the buffers between.
    await until(lambda: server.limits.count == 1)
    await until(lambda: server.limits.count == 0)
    assert await (await dial()).status(HEALTH) == 200


async def test_event_streams_are_limited(
    store: AsyncStore, serve: Serve, settings: HttpSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "MAX_VIEWERS_OF_A_USER", 2)
    app = application(store)
    server = await serve(app, settings)
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", timeout=60)
        )
        reading = []
        for _ in range(2):
            stream = await stack.enter_async_context(client.stream("GET", "/events/changes"))
            assert stream.status_code == 200
            # Kept: a reader that is dropped closes its stream.
            reading.append(stream.aiter_lines())
            await anext(reading[-1])
        assert "2 pages are watching already" in problem(await client.get("/events/changes"), 503)
    await until(lambda: app.state.history.viewers == 0)
