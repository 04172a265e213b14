"""Frameworks on Redis Streams run unmodified: FastStream, taskiq-redis with its autoclaim, walrus consumer groups."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.servers.clients.client_programs import HERE
from tests.servers.clients.processes import PenstockServer, RedisServer
from tests.servers.clients.test_streams_round_trip import agree, output

# Where make puts them: they choose versions of their own.
FRAMEWORKS = Path(sys.prefix) / "clients" / "frameworks"
SERVERS = ["shared_server", "postgres_server"]


def run(program: str, port: int, stream: str) -> Any:
    if not FRAMEWORKS.exists():
        pytest.skip(f"the frameworks are not in {FRAMEWORKS} (make test puts them there)")
    words = [sys.executable, str(HERE / f"{program}_program.py"), str(port), stream]
    return output(words, {"PYTHONPATH": str(FRAMEWORKS)})


@pytest.fixture(params=SERVERS, ids=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> PenstockServer:
    found: PenstockServer = request.getfixturevalue(request.param)
    return found


def test_faststream_reads_takes_over_and_follows(server: PenstockServer) -> None:
    seen = run("faststream", server.port, "faststream")
    assert seen == {"group": [1, 2, 3], "claimed": [2], "followed": [1, 2, 3]}


def test_taskiq_runs_tasks_and_takes_over_those_of_a_dead_worker(server: PenstockServer) -> None:
    assert run("taskiq", server.port, "taskiq") == {"done": [1, 2, 3], "locks": 0}


def test_walrus_consumer_groups_see_the_same_as_on_redis(server: PenstockServer, redis_server: RedisServer) -> None:
    stream = f"walrus-{server.port}"
    agree(run("walrus", server.port, stream), run("walrus", redis_server.port, stream))
