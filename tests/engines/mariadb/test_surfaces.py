"""What is built on the store works on MariaDB as on the other engines: one pass through each interface."""

from __future__ import annotations

import html
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pymysql
import pytest

import penstock
from tests.cli.cli_runner import Cli
from tests.engines.mariadb.server import fresh_database, own_connection
from tests.ports import LOOPBACK, free_port
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.wire import Wire

NASTY = 'it\'s "$HOME" `id`; -- \\ %s ü 🚰'


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[PenstockServer, str]]:
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    environment = {"PENSTOCK_HTTP_ENABLED": "true", "PENSTOCK_HTTP_PORT": str(port)}
    with PenstockServer(folder, url=fresh_database(folder), environment=environment) as process:
        process.start()
        yield process, f"http://{LOOPBACK}:{port}"


def test_a_message_goes_through_the_redis_protocol_http_and_the_command_line(
    served: tuple[PenstockServer, str], tmp_path: Path
) -> None:
    server, base = served
    cli = Cli(tmp_path)
    cli.url = server.url
    with Wire(server.port) as wire, httpx.Client(base_url=base, timeout=60) as http:
        wire.call("XADD", "events", "*", "field", "value")
        sent = http.post("/api/v1/queues/orders/messages", json={"payload": {"order": 1}})
        assert sent.status_code == 201, sent.text
        [delivery] = cli.json("receive", "orders", "--lease-seconds", "60")
        assert delivery["payload"] == {"order": 1}
        cli("ack", "orders", delivery["id"], "--token", str(delivery["token"]))
        assert http.get("/api/v1/queues/orders/stats").json()["groups"]["default"]["done"] == 1
        assert {row["name"] for row in cli.json("queues")} >= {"orders", "events"}
        assert {check["level"] for check in cli.json("doctor")} == {"ok"}


def test_the_dashboard_offers_sql_that_finds_a_message_of_any_queue_name(served: tuple[PenstockServer, str]) -> None:
    server, base = served
    with penstock.connect(server.url) as store:
        message_id = store.queue(NASTY).send({"was": "here"})
    found: list[tuple[bytes, ...]] = []
    connection = own_connection(server.url)
    with httpx.Client(base_url=base, timeout=60) as http:
        for path in (
            httpx.URL(f"/queues/{quote(NASTY, safe='')}"),
            httpx.URL(f"/queues/{quote(NASTY, safe='')}/messages/{message_id}"),
        ):
            found += _run(connection, _recipe(http.get(path).text))
    connection.close()
    assert [b'{"was":"here"}' in row for row in found] == [True, True]


def _recipe(page: str) -> str:
    labels = re.findall(r'<label for="recipe-\d">([^<]*)</label>', page)
    blocks = re.findall(r'<div class="tab tab-\d"><pre><code>(.*?)</code></pre>', page, re.DOTALL)
    recipes: dict[str, str] = dict(zip(labels, map(html.unescape, blocks), strict=True))
    return recipes["SQL"]


def _run(connection: pymysql.Connection[Any], statement: str) -> list[tuple[bytes, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        return list(cursor.fetchall())


def test_a_worker_handles_what_another_process_sends(served: tuple[PenstockServer, str]) -> None:
    server, base = served
    handled = threading.Event()
    with penstock.connect(server.url) as store:
        worker = penstock.Worker(store, {"jobs": lambda delivery: handled.set()}, grace_seconds=5)
        worker.start()
        httpx.post(f"{base}/api/v1/queues/jobs/messages", json={"payload": 1}, timeout=60)
        assert handled.wait(60)
        worker.stop()
        assert store.queue("jobs").stats("default").done == 1


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_the_asynchronous_client_waits_for_a_message(served: tuple[PenstockServer, str]) -> None:
    async with await penstock.connect_async(served[0].url) as store:
        queue = await store.queue("awaited")
        await queue.send(b"1")
        [delivery] = await queue.receive(wait_seconds=60)
        await delivery.ack()
