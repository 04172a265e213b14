"""`penstock serve` on a server that is not ready for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import penstock
from tests.engines.postgres.server import fresh_database
from tests.ports import free_port
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.wire import Wire


def test_a_store_without_schema_is_refused_before_any_client_comes(tmp_path: Path) -> None:
    url = fresh_database(migrated=False)
    port = free_port()
    words = ["serve", "--url", url, "--resp-port", str(port), "--http-port", str(free_port())]
    ended = subprocess.run([sys.executable, "-m", "penstock", *words], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    assert "has no Penstock schema: run `penstock migrate`" in ended.stderr
    assert "Serving" not in ended.stdout + ended.stderr
    with penstock.connect(url) as store:
        store.migrate()
    with PenstockServer(tmp_path, url=url) as server:
        server.start()
        with Wire(server.port) as wire:
            assert wire.call("QADD", "q", 60, "x", "NOBLOCK") == b"OK"
