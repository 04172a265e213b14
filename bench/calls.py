"""`python -m bench.calls`: count the Python calls that the servers make for one message.

Each request is sent some times to warm up and then a few times more, from one client, while a profile function counts
the calls of all threads of the server. The smallest count is reported, because timers of the server only add to it.
Calls of C functions and of the client are not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any

import uvloop

from penstock import connect_async
from penstock.servers.access import Users, make_users
from penstock.servers.http import application
from penstock.servers.http.server import HttpListener
from penstock.servers.resp.server import Server
from penstock.settings import HttpSettings

WARM_UP = 20
COUNTED = 5
# Replies arrive in one read; the calls that the server makes afterwards are counted too.
QUIET_SECONDS = 0.05
Counts = Counter[tuple[str, str]]


class Calls:
    """Counts calls of every thread that is started while it exists, as (file, function)."""

    def __init__(self) -> None:
        self.counts: Counts = Counter()
        self.is_counting = False

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and self.is_counting:
            code = frame.f_code
            self.counts[code.co_filename, code.co_qualname] += 1

    @contextmanager
    def counting(self) -> Iterator[Counts]:
        self.counts = Counter()
        time.sleep(QUIET_SECONDS)
        self.is_counting = True
        yield self.counts
        time.sleep(QUIET_SECONDS)
        self.is_counting = False


def measure(url: str) -> dict[str, Counts]:
    """The calls for one warm message, by request."""
    calls = Calls()
    ports: list[int] = []
    stop: list[Callable[[], object]] = []
    ready = threading.Event()

    async def serve() -> None:
        ended = asyncio.Event()
        stop.append(lambda: loop.call_soon_threadsafe(ended.set))
        loop = asyncio.get_running_loop()
        async with await connect_async(url) as store:
            server = Server(store, Users(make_users(None, {})))
            http = HttpListener(application(store), HttpSettings(port=0), None)
            await http.start()
            ports.extend((await server.listen("127.0.0.1", 0), http.port))
            ready.set()
            await ended.wait()
            await asyncio.gather(server.close(), http.stop())

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(serve())

    threading.setprofile(calls)
    thread = threading.Thread(target=run)
    thread.start()
    ready.wait()
    try:
        return _resp(ports[0], calls) | _http(ports[1], calls)
    finally:
        stop[0]()
        thread.join()
        threading.setprofile(None)


def _resp(port: int, calls: Calls) -> dict[str, Counts]:
    counted: dict[str, list[Counts]] = {"QADD": [], "QGET": [], "QACK": []}
    with socket.create_connection(("127.0.0.1", port)) as client:

        def ask(*words: bytes) -> bytes:
            return _ask(client, _command(*words))

        for _ in range(WARM_UP):
            ask(b"QADD", b"q", b"600", b"payload")
            ask(b"QACK", b"q", b"g", _id(ask(b"QGET", b"q", b"g")))
        for _ in range(COUNTED):
            with calls.counting() as counts:
                ask(b"QADD", b"q", b"600", b"payload")
            counted["QADD"].append(counts)
            with calls.counting() as counts:
                reply = ask(b"QGET", b"q", b"g")
            counted["QGET"].append(counts)
            with calls.counting() as counts:
                ask(b"QACK", b"q", b"g", _id(reply))
            counted["QACK"].append(counts)
    return {request: min(rounds, key=Counter.total) for request, rounds in counted.items()}


def _id(reply: bytes) -> bytes:
    return reply.split(b"\r\n")[2]


def _http(port: int, calls: Calls) -> dict[str, Counts]:
    client = HTTPConnection("127.0.0.1", port)

    def send() -> None:
        client.request(
            "POST", "/api/v1/queues/h/messages", b'{"payload": {"a": 1}}', {"Content-Type": "application/json"}
        )
        reply = client.getresponse()
        assert reply.status == 201, reply.read()
        reply.read()

    for _ in range(WARM_UP):
        send()
    counted = []
    for _ in range(COUNTED):
        with calls.counting() as counts:
            send()
        counted.append(counts)
    client.close()
    return {"HTTP POST": min(counted, key=Counter.total)}


def _ask(client: socket.socket, request: bytes) -> bytes:
    client.sendall(request)
    return client.recv(65536)


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description="Count Python calls per message.")
    parser.add_argument("--url", help="the store (default: a new SQLite file)")
    parser.add_argument("--show", metavar="REQUEST", help="list the calls of one request, such as QADD")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(arguments.url or f"sqlite:///{folder}/calls.db")
    for request, counts in found.items():
        print(f"{request:10} {counts.total():4} calls in {len({file for file, _ in counts}):3} files")
        if request == arguments.show:
            for (file, function), count in counts.items():
                print(f"{count:6} {Path(file).parent.name}/{Path(file).name} {function}")


if __name__ == "__main__":
    main()
