"""A standby refuses writes with a clear error."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock
from penstock import StoreReadOnly
from tests.engines.postgres.server import Server


@pytest.fixture
def standby() -> Iterator[Server]:
    """A standby whose primary never appears; it can be read."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        server = Server(Path(folder) / "cluster", durable=True)
        try:
            with penstock.connect(server.url()) as store:
                store.migrate()
                store.queue("orders").send(1)
            server.stop()
            (server.data / "standby.signal").touch()
            server.start()
            yield server
        finally:
            server.remove()


def test_a_standby_is_refused_by_name(standby: Server) -> None:
    with penstock.connect(standby.url()) as store:
        for call in (lambda: store.queue("orders").send(2), lambda: store.queue("orders").receive(), store.migrate):
            with pytest.raises(StoreReadOnly, match="standby"):
                call()
