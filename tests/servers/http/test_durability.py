"""What was answered is on the disk: a server that is killed has lost nothing that it said it had."""

from __future__ import annotations

import asyncio
from pathlib import Path

import httpx
import pytest

import penstock
from tests.servers.http.api_client import Api
from tests.servers.http.processes import HttpServer

pytestmark = pytest.mark.anyio
CLIENTS = 20
ENOUGH = 150


async def test_killed_server_loses_no_acknowledged_send(tmp_path: Path) -> None:
    sent: list[str] = []
    acked: list[str] = []
    enough = asyncio.Event()

    async def work(client: httpx.AsyncClient, number: int) -> None:
        api = Api(client)
        for place in range(10_000):
            try:
                sent.append(await api.send("q", [number, place]))
                for delivery in await api.receive("q"):
                    if (await api.settle(delivery, "ack")).is_success:
                        acked.append(delivery["id"])
            except httpx.TransportError:
                return
            if len(acked) >= ENOUGH:
                enough.set()

    with HttpServer(tmp_path) as server:
        server.start()
        async with httpx.AsyncClient(base_url=server.http_url, timeout=60) as client:
            working = [asyncio.create_task(work(client, number)) for number in range(CLIENTS)]
            await enough.wait()
            server.kill()
            await asyncio.gather(*working)
    with penstock.connect(server.url) as store:
        queue = store.queue("q")
        found = {one: queue.audit(one)[-1].event for one in sent}
        assert len(found) == len(sent) >= ENOUGH
        assert {str(found[one]) for one in acked if one in found} == {"ack"}
        stats = queue.stats(group="default")
        # A request that was under way may have been done without its answer.
        assert len(acked) <= stats.done <= len(acked) + CLIENTS
        assert len(sent) <= stats.total <= len(sent) + CLIENTS
