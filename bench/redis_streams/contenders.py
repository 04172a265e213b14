"""Who takes part: Redis with its append-only file synced at every write, and Penstock on SQLite, in two dialects."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.servers.clients.processes import PenstockServer, RedisServer, ServerProcess

ROOT = Path(__file__).resolve().parents[2]
REDIS = "Redis Streams"
PENSTOCK = "Penstock, queue commands"
PENSTOCK_STREAMS = "Penstock, Streams commands"


@dataclass(frozen=True)
class Contender:
    name: str
    server: ServerProcess
    dialect: str

    def load(self, kind: str, *numbers: float) -> dict[str, Any]:
        """Runs the load against this contender and gives back what it measured."""
        words = ["-m", "bench.redis_streams.load", kind, str(self.server.port), self.dialect, *map(str, numbers)]
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=ROOT, timeout=600)
        if done.returncode:
            raise SystemExit(f"the load on {self.name} failed:\n{done.stderr}\n{self.server.said()}")
        result: dict[str, Any] = json.loads(done.stdout)
        return result


@contextlib.contextmanager
def running(folder: Path) -> Iterator[list[Contender]]:
    """All contenders, each with its own empty server."""
    folder.mkdir()
    contenders = [
        Contender(REDIS, RedisServer(_place(folder, "redis"), durable=True), "streams"),
        Contender(PENSTOCK, PenstockServer(_place(folder, "bananaq")), "bananaq"),
        Contender(PENSTOCK_STREAMS, PenstockServer(_place(folder, "streams")), "streams"),
    ]
    with contextlib.ExitStack() as servers:
        for contender in contenders:
            servers.enter_context(contender.server)
            contender.server.start()
            contender.load("prepare")
        yield contenders


def _place(folder: Path, name: str) -> Path:
    path = folder / name
    path.mkdir()
    return path
