"""What a thousand consumers cost that wait for a message and get none."""

from __future__ import annotations

import contextlib
import resource
import socket
import time
from collections.abc import Sequence
from typing import Any

from bench.redis_streams.contenders import REDIS, Contender
from bench.redis_streams.dialects import GROUP
from tests.servers.clients.watching import until
from tests.servers.clients.wire import Wire, frame

QUEUE = "idle"


def measure(contenders: Sequence[Contender], consumers: int, seconds: float) -> dict[str, Any]:
    allow_files(consumers + 100)
    return {contender.name: _measure(contender, consumers, seconds) for contender in contenders}


def _measure(contender: Contender, consumers: int, seconds: float) -> dict[str, float]:
    server = contender.server
    with Wire(server.port) as wire, contextlib.ExitStack() as open_ones:
        if contender.dialect == "streams":
            wire.call("XGROUP", "CREATE", QUEUE, GROUP, "0", "MKSTREAM")
        before = server.rss_bytes()
        for number in range(consumers):
            link = open_ones.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            link.sendall(_waiting(contender, number))
        until(lambda: _blocked(wire, contender) >= consumers)
        began, used = time.monotonic(), server.cpu_seconds()
        time.sleep(seconds)
        cores = (server.cpu_seconds() - used) / (time.monotonic() - began)
        return {"cpu_percent": cores * 100, "rss_mb": server.rss_bytes() / 1e6, "rss_before_mb": before / 1e6}


def _waiting(contender: Contender, number: int) -> bytes:
    if contender.dialect == "streams":
        return frame("XREADGROUP", "GROUP", GROUP, f"c{number}", "BLOCK", 0, "STREAMS", QUEUE, ">")
    return frame("QNOTIFY", GROUP, 3600, QUEUE)


def _blocked(wire: Wire, contender: Contender) -> int:
    if contender.name == REDIS or contender.dialect == "streams":
        told = wire.call("INFO", "clients").decode()
        return int(told.partition("blocked_clients:")[2].split()[0])
    ((_, groups),) = wire.call("QSTATUS", QUEUE, "GROUPS", GROUP)
    counts = dict(zip(groups[1][::2], groups[1][1::2], strict=True))
    return int(counts[b"consumers"])


def allow_files(number: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < number:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(number, hard), hard))
