"""Programs written for Redis Streams see the same on Penstock as on Redis, in every client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from tests.servers.clients.client_programs import HERE, SPEAKERS, node_words, redis_py_environment
from tests.servers.clients.normalisation import Names
from tests.servers.clients.processes import PenstockServer, RedisServer


@pytest.mark.parametrize("protocol", [2, 3])
@pytest.mark.parametrize("version", [7, 8])
def test_redis_py(version: int, protocol: int, shared_server: PenstockServer, redis_server: RedisServer) -> None:
    stream = f"redis-py-{version}-{protocol}"

    def run(port: int) -> Any:
        words = [sys.executable, str(HERE / "redis_py_stream_program.py"), str(port), str(protocol), stream]
        return output(words, redis_py_environment(version))

    agree(run(shared_server.port), run(redis_server.port))


def test_redis_py_on_postgres(postgres_server: PenstockServer, redis_server: RedisServer) -> None:
    def run(port: int) -> Any:
        words = [sys.executable, str(HERE / "redis_py_stream_program.py"), str(port), "3", "redis-py-on-postgres"]
        return output(words, redis_py_environment(8))

    agree(run(postgres_server.port), run(redis_server.port))


@pytest.mark.parametrize("client", ["ioredis", "node_redis"])
def test_node_clients(client: str, shared_server: PenstockServer, redis_server: RedisServer) -> None:
    def run(port: int) -> Any:
        return output(node_words(f"streams_{client}.mjs", port, f"stream-{client}"))

    agree(run(shared_server.port), run(redis_server.port))


@pytest.mark.parametrize("protocol", [2, 3])
def test_redis_cli(protocol: int, shared_server: PenstockServer, redis_server: RedisServer) -> None:
    agree(typed(shared_server.port, protocol), typed(redis_server.port, protocol))


def typed(port: int, protocol: int) -> dict[str, Any]:
    """What a person types into redis-cli."""
    stream = f"redis-cli-{protocol}"
    seen: dict[str, Any] = {}
    with SPEAKERS[f"redis-cli RESP{protocol}"](port) as cli:
        seen["create"] = cli("XGROUP", "CREATE", stream, "workers", "$", "MKSTREAM")
        seen["add"] = [cli("XADD", stream, "*", "task", f"t{number}") for number in range(3)]
        seen["len"] = cli("XLEN", stream)
        seen["range"] = cli("XRANGE", stream, "-", "+")
        seen["read"] = cli("XREADGROUP", "GROUP", "workers", "alice", "COUNT", 2, "STREAMS", stream, ">")
        seen["pending"] = cli("XPENDING", stream, "workers")
        seen["ack"] = cli("XACK", stream, "workers", *seen["add"][:2])
        seen["pending none"] = cli("XPENDING", stream, "workers")
        seen["read last"] = cli("xreadgroup", "group", "workers", "bob", "block", 100, "streams", stream, ">")
        seen["read none"] = cli("XREADGROUP", "GROUP", "workers", "bob", "BLOCK", 20, "STREAMS", stream, ">")
        seen["groups"] = cli("XINFO", "GROUPS", stream)[:8]
        seen["del"] = cli("XDEL", stream, seen["add"][0])
        seen["destroy"] = cli("XGROUP", "DESTROY", stream, "workers")
    return seen


def output(words: list[str], environment: dict[str, str] | None = None) -> Any:
    done = subprocess.run(words, capture_output=True, timeout=60, env={**os.environ, **(environment or {})})
    assert done.returncode == 0, done.stderr.decode(errors="replace")
    return json.loads(done.stdout)


def agree(on_penstock: dict[str, Any], on_redis: dict[str, Any]) -> None:
    ours, theirs = Names().of(on_penstock), Names().of(on_redis)
    differing = {
        step: {"penstock": ours.get(step), "redis": theirs.get(step)}
        for step in theirs
        if ours.get(step) != theirs[step]
    }
    assert not differing, json.dumps(differing, indent=1)
