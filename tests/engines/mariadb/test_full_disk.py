"""A MariaDB server whose disk is full: sends are refused with a clear error, and nothing confirmed is lost."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from tests.engines.mariadb.server import IS_MYSQL, MariadbServer
from tests.engines.postgres.test_full_disk import everything, fill, send_until, small_disk

__all__ = ["small_disk"]
DATABASE = "app"


@pytest.fixture
def server(small_disk: Path) -> Iterator[MariadbServer]:
    """A server with the tables of a store on the small disk; its logs have room enough."""
    if IS_MYSQL:
        pytest.skip("MySQL does not take a database whose folder is a link")
    with tempfile.TemporaryDirectory(prefix="penstock-maria-") as made:
        Path(made).chmod(0o755)
        running = MariadbServer(Path(made) / "server", durable=True)
        tables = small_disk / "tables"
        tables.mkdir()
        owner = running.data.stat()
        os.chown(tables, owner.st_uid, owner.st_gid)
        (running.data / DATABASE).symlink_to(tables)
        with penstock.connect(running.url(DATABASE)) as store:
            store.migrate()
        yield running
        running.remove()


@pytest.mark.parametrize("small_disk", [24_000_000], indirect=True)
def test_a_full_disk_refuses_sends_and_loses_nothing(server: MariadbServer, small_disk: Path) -> None:
    """InnoDB may end the server when it cannot write a page: it has the change in its log."""
    ballast = small_disk / "ballast"
    with penstock.connect(server.url(DATABASE)) as store:
        queue = store.queue("orders")
        ids = queue.send_many([bytes(8_000)] * 10)
        fill(ballast)
        ids += send_until(queue, (penstock.StoreFull, penstock.StoreUnavailable))
        ballast.unlink()
        server.stop(signal.SIGKILL)
        server.start()
        ids += queue.send_many([b"after"])
        assert set(ids) <= everything(queue)
        assert all(check.level != "error" for check in store.doctor())
