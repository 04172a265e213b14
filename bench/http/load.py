"""The load, in a process of its own: `python -m bench.http.load PORT CONNECTIONS BATCH SECONDS`, one JSON line out.

Connections are plain protocols that write bytes made before: what is measured should be the server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any, cast

import httptools
import msgspec

from bench.plan import payload

WARM_UP_SECONDS = 0.5
QUEUE = "/api/v1/queues/bench"
GROUP = "workers"


class Cycle(asyncio.Protocol):
    """Sends, receives and settles `batch` messages at a time, each step one request, again and again."""

    def __init__(self, batch: int, number: int) -> None:
        messages = [{"payload_base64": _text(number * batch + place)} for place in range(batch)]
        self._send = (
            request(f"{QUEUE}/messages", messages[0])
            if batch == 1
            else request(f"{QUEUE}/messages/many", {"messages": messages})
        )
        body = {"limit": batch, "group": GROUP, "consumer": f"c{number}", "wait_seconds": 5}
        self._receive = request(f"{QUEUE}/receive", body)
        self._step = self._sent
        self._body = bytearray()
        self.requests = self.finished = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        body, self._body = bytes(self._body), bytearray()
        self.requests += 1
        if self._parser.get_status_code() >= 300:
            self._fail(body)
        else:
            self._step(body)

    def connection_lost(self, error: Exception | None) -> None:
        self._fail(b"the server closed the connection")

    def _fail(self, why: bytes) -> None:
        if not self.ended.done():
            self.ended.set_exception(RuntimeError(why.decode()))

    def go(self) -> None:
        self._step = self._sent
        self._transport.write(self._send)

    def _sent(self, body: bytes) -> None:
        self._step = self._received
        self._transport.write(self._receive)

    def _received(self, body: bytes) -> None:
        deliveries = msgspec.json.decode(body)["deliveries"]
        settlements = [
            {"action": "ack", **{name: one[name] for name in ("id", "token", "group", "position")}}
            for one in deliveries
        ]
        self._count = len(settlements)
        self._step = self._settled
        self._transport.write(request(f"{QUEUE}/settle", {"settlements": settlements}))

    def _settled(self, body: bytes) -> None:
        if body.count(b'"ok":true') != self._count:
            self._fail(body)
            return
        self.finished += self._count
        self.go()


def _text(number: int) -> str:
    import base64

    return base64.b64encode(payload(number)).decode()


def request(path: str, body: Any) -> bytes:
    content = msgspec.json.encode(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content


async def cycles(port: int, connections: int, batch: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    members = []
    for number in range(connections):
        _, member = await loop.create_connection(lambda number=number: Cycle(batch, number), "127.0.0.1", port)  # type: ignore[misc]
        members.append(member)
    for member in members:
        member.go()
    failed = asyncio.ensure_future(asyncio.gather(*(member.ended for member in members)))
    await _unless(failed, WARM_UP_SECONDS)
    before, began, cpu = _totals(members), time.perf_counter(), time.process_time()
    await _unless(failed, seconds)
    after, elapsed, cpu = _totals(members), time.perf_counter() - began, time.process_time() - cpu
    failed.cancel()
    return {
        "requests": after[0] - before[0],
        "messages": after[1] - before[1],
        "seconds": elapsed,
        "load_cores": cpu / elapsed,
    }


def _totals(members: list[Cycle]) -> tuple[int, int]:
    return sum(one.requests for one in members), sum(one.finished for one in members)


async def _unless(failed: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait([failed], timeout=seconds)
    if failed.done():
        failed.result()


def main() -> None:
    import uvloop

    port, connections, batch, seconds = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(cycles(int(port), int(connections), int(batch), float(seconds)))))


if __name__ == "__main__":
    main()
