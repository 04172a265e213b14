"""The cost of a thousand blocked consumers."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Sequence
from typing import Any

from bench.redis_streams.contenders import Contender
from bench.redis_streams.dialects import GROUP
from tests.servers.clients.processes import ServerProcess
from tests.servers.clients.queue_status import until
from tests.servers.clients.wire import Wire, frame

QUEUE = "idle"
# Long enough that creating the consumers is not measured.
SETTLING_SECONDS = 3.0


def measure(contenders: Sequence[Contender], consumers: int, seconds: float) -> dict[str, Any]:
    """All of one queue, and each of a queue of its own."""
    allow_files(consumers + 100)
    return {
        contender.name: {
            "one queue": _measure(contender, consumers, seconds, [QUEUE] * consumers),
            "many queues": _measure(contender, consumers, seconds, [f"{QUEUE}-{place}" for place in range(consumers)]),
        }
        for contender in contenders
    }


def _measure(contender: Contender, consumers: int, seconds: float, queues: list[str]) -> dict[str, float]:
    server = contender.server
    with Wire(server.port) as wire, contextlib.ExitStack() as open_ones:
        if contender.dialect == "streams":
            for queue in dict.fromkeys(queues):
                wire.call("XGROUP", "CREATE", queue, GROUP, "0", "MKSTREAM")
        rss_before, cpu_before = server.rss_bytes(), _cpu_percent(server, seconds)
        for number, queue in enumerate(queues):
            link = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            link.sendall(_waiting(contender, number, queue))
        until(lambda: _blocked(wire) >= consumers)
        time.sleep(SETTLING_SECONDS)
        return {
            "cpu_percent": _cpu_percent(server, seconds),
            "cpu_before_percent": cpu_before,
            "rss_mb": server.rss_bytes() / 1e6,
            "rss_before_mb": rss_before / 1e6,
        }


def _cpu_percent(server: ServerProcess, seconds: float) -> float:
    """Share of one core while idle."""
    began, used = time.monotonic(), server.cpu_seconds()
    time.sleep(seconds)
    return 100 * (server.cpu_seconds() - used) / (time.monotonic() - began)


def _waiting(contender: Contender, number: int, queue: str) -> bytes:
    if contender.dialect == "streams":
        return frame("XREADGROUP", "GROUP", GROUP, f"c{number}", "BLOCK", 0, "STREAMS", queue, ">")
    return frame("QNOTIFY", GROUP, 3600, queue)


def _blocked(wire: Wire) -> int:
    told = wire.call("INFO", "clients").decode()
    return int(told.partition("blocked_clients:")[2].split()[0])


def allow_files(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
