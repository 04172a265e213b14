"""The server is killed and comes back."""

from __future__ import annotations

import signal
import tempfile
from pathlib import Path

import pytest

import penstock
from tests.engines.mariadb.server import MariadbServer


def test_a_store_goes_on_after_its_server_was_killed() -> None:
    with tempfile.TemporaryDirectory(prefix="penstock-maria-") as made:
        folder = Path(made)
        folder.chmod(0o755)
        server = MariadbServer(folder / "server", durable=True)
        try:
            admin = server.connect()
            admin.query("create database app")
            admin.close()
            with penstock.connect(server.url("app")) as store:
                store.migrate()
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
        finally:
            server.remove()
