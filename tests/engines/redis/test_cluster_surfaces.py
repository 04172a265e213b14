"""What is built on the engines works on a cluster too, with a queue that is spread over its slots."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import httpx
import pytest
import redis

import penstock
from tests.cli.cli_runner import Cli
from tests.engines.redis.cluster import fresh_cluster_store
from tests.servers.http.processes import HttpServer

pytestmark = pytest.mark.xdist_group("redis_cluster")
SHARDS = 3
MESSAGES = 12
QUEUE_PAGES = ("", "/messages", "/messages?state=leased", "/dead")
PAGES = (*(f"queues/orders{page}" for page in QUEUE_PAGES), "", "dead", "consumers", "batches", "search?q=orders")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def url() -> str:
    url = fresh_cluster_store()
    with penstock.connect(url) as store:
        store.queue("orders", shards=SHARDS)
    return url


def test_servers_share_a_spread_queue(url: str, tmp_path: Path) -> None:
    """Entries of a stream and messages of the HTTP API, sent to one server and received from another."""
    one, two = (HttpServer(tmp_path / name, url=url) for name in ("one", "two"))
    with one, two:
        one.start()
        two.start()
        with redis.Redis(port=one.port, protocol=2) as sender, redis.Redis(port=two.port, protocol=2) as receiver:
            sent = {sender.xadd("orders", {"number": str(number)}) for number in range(MESSAGES)}
            assert sender.xlen("orders") == MESSAGES
            assert [entry for entry, _ in receiver.xrange("orders")] == sorted(sent, key=position)
            sender.xgroup_create("orders", "workers", "0")
            [[_, entries]] = receiver.xreadgroup("workers", "zoe", {"orders": ">"}, count=MESSAGES)
            assert {entry for entry, _ in entries} == sent
            assert receiver.xack("orders", "workers", *sent) == MESSAGES
        check_http(f"{one.http_url}/api/v1/queues/orders", f"{two.http_url}/api/v1/queues/orders")
        for page in PAGES:
            answer = httpx.get(f"{two.http_url}/{page}", follow_redirects=True, timeout=60)
            assert answer.status_code == 200, page


def position(entry: bytes) -> int:
    return int(entry.split(b"-")[1])


def check_http(sender: str, receiver: str) -> None:
    """In a group that has acked nothing yet: entries of the stream and messages of the API."""
    with httpx.Client(timeout=60) as client:
        messages = [{"payload": {"number": number}, "key": str(number)} for number in range(MESSAGES)]
        sent = client.post(f"{sender}/messages/many", json={"messages": messages}).json()
        assert len(sent["ids"]) == MESSAGES
        taken = client.post(f"{receiver}/receive", json={"limit": 3 * MESSAGES, "group": "workers"}).json()
        assert {one["id"] for one in taken["deliveries"]} == set(sent["ids"])
        settles = [
            {"id": one["id"], "token": one["token"], "group": "workers", "action": "ack"} for one in taken["deliveries"]
        ]
        answer = client.post(f"{receiver}/settle", json={"settlements": settles})
        assert answer.status_code == 200, answer.text
        stats = client.get(f"{sender}/stats").json()
        assert stats["groups"]["workers"]["done"] == 2 * MESSAGES


def test_the_command_line(url: str, tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.url = url
    sent = {cli.send("orders", f'{{"number": {number}}}') for number in range(SHARDS)}
    assert {one["id"] for one in cli.json("peek", "orders", "--limit", "10")} == sent
    for _ in sent:
        message_id, token = cli.receive("orders")
        cli("ack", "orders", message_id, "--token", token)
        assert "ack" in cli("audit", "orders", message_id).stdout
    assert {check["name"] for check in cli.json("doctor")} >= {"server", "schema", "durability", "memory"}
    cli("sweep")


def test_workers_share_a_spread_queue(url: str) -> None:
    """Each begins at a home shard of its own, and all messages are handled once."""
    handled, all_handled = list[int](), threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        handled.append(delivery.json())
        if len(handled) == 10 * MESSAGES:
            all_handled.set()

    with penstock.connect(url) as store:
        workers = [penstock.Worker(store, {"orders": handle}, grace_seconds=5) for _ in range(2)]
        for worker in workers:
            worker.start()
        try:
            for number in range(10 * MESSAGES):
                store.queue("orders").send(number)
            assert all_handled.wait(60)
        finally:
            for worker in workers:
                worker.stop()
        assert sorted(handled) == [*range(10 * MESSAGES)]
        assert store.queue("orders").stats("default").done == 10 * MESSAGES


@pytest.mark.anyio
async def test_concurrent_calls_of_the_asynchronous_client(url: str) -> None:
    """They are coalesced into fewer calls, over all shards."""
    async with await penstock.connect_async(url) as store:
        queue = await store.queue("orders")
        sent = await asyncio.gather(*(queue.send(number, key=str(number)) for number in range(5 * MESSAGES)))
        assert len(set(sent)) == 5 * MESSAGES
        taken = [
            one for some in await asyncio.gather(*(queue.receive(limit=10) for _ in range(MESSAGES))) for one in some
        ]
        taken += await queue.receive(limit=5 * MESSAGES)
        assert sorted(one.id for one in taken) == sorted(sent)
        await asyncio.gather(*(one.ack() for one in taken))
        assert (await queue.stats("default")).done == 5 * MESSAGES
