"""What is built on the engines works on Redis too: each surface once."""

from __future__ import annotations

import threading
from pathlib import Path

import redis

import penstock
from tests.cli.cli_runner import Cli
from tests.engines.redis.server import fresh_store
from tests.servers.clients.processes import PenstockServer


def test_two_servers_share_a_store(tmp_path: Path) -> None:
    url = fresh_store()
    with PenstockServer(tmp_path / "one", url=url) as one, PenstockServer(tmp_path / "two", url=url) as two:
        one.start()
        two.start()
        with redis.Redis(port=one.port, protocol=2) as sender, redis.Redis(port=two.port, protocol=2) as receiver:
            sender.xgroup_create("orders", "workers", "0", mkstream=True)
            sent = sender.xadd("orders", {"number": "1"})
            [[_, [(received, fields)]]] = receiver.xreadgroup("workers", "zoe", {"orders": ">"})
            assert (received, fields) == (sent, {b"number": b"1"})
            assert sender.xack("orders", "workers", received) == 1


def test_the_command_line(tmp_path: Path) -> None:
    cli = Cli(tmp_path)
    cli.url = fresh_store()
    message_id = cli.send("orders", '{"number": 1}')
    assert message_id in cli("peek", "orders").stdout
    assert {check["name"] for check in cli.json("doctor")} >= {"server", "schema", "durability", "memory"}


def test_a_worker() -> None:
    done = threading.Event()
    with penstock.connect(fresh_store()) as store:
        worker = penstock.Worker(store, {"orders": lambda delivery: done.set()}, grace_seconds=5)
        worker.start()
        try:
            store.queue("orders").send(1)
            assert done.wait(60)
        finally:
            worker.stop()
        assert store.queue("orders").stats("default").done == 1
