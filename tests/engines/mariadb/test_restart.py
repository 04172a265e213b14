"""The server is killed and comes back."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.engines.mariadb.load import Load
from tests.engines.mariadb.server import MariadbServer


@pytest.fixture(scope="module")
def server() -> Iterator[MariadbServer]:
    with tempfile.TemporaryDirectory(prefix="penstock-maria-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        running = MariadbServer(folder / "server", durable=True)
        admin = running.connect()
        admin.query("create database app")
        admin.close()
        with penstock.connect(running.url("app")) as store:
            store.migrate()
        yield running
        running.remove()


def test_a_store_goes_on_after_its_server_was_killed(server: MariadbServer) -> None:
    with penstock.connect(server.url("app")) as store:
        queue = store.queue("orders")
        sent = [queue.send(str(number).encode()) for number in range(3)]
        server.stop(signal.SIGKILL)
        with pytest.raises(penstock.StoreUnavailable, match="cannot be reached"):
            queue.send(b"lost")
        server.start()
        sent.append(queue.send(b"3"))
        deliveries = queue.receive(limit=10)
        assert [one.id for one in deliveries] == sent
        assert queue.ack_many(deliveries) == 4


def test_a_server_killed_under_load_has_every_acknowledged_send_once(server: MariadbServer) -> None:
    load = Load("load", [server.url("app")] * 3)
    load.await_more(30)
    server.stop(signal.SIGKILL)
    server.start()
    load.await_more(30)
    load.stop()
    load.check(server.url("app"))
