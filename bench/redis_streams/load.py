"""The load, in a process of its own: `python -m bench.redis_streams.load KIND PORT DIALECT ...`, one JSON line out.

Connections are plain protocols without tasks, writing bytes that were made before: what is measured should be the
server. How much of a core the load itself took is told, because a load that is out of breath measures itself.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
import time
from typing import Any, cast

import hiredis

from bench.redis_streams.dialects import DIALECTS, Dialect, errors

WARM_UP_SECONDS = 0.5
LOOPBACK = "127.0.0.1"


class Connection(asyncio.Protocol):
    """Gathers the replies to what was written, then calls `on_replies`."""

    def __init__(self) -> None:
        self._reader = hiredis.Reader()
        self._awaited = 0
        self._replies: list[Any] = []
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def ask(self, data: bytes, replies: int) -> None:
        self._awaited = replies
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while self._awaited and (reply := self._reader.gets()) is not False:
            self._replies.append(reply)
            self._awaited -= 1
        if not self._awaited and self._replies:
            replies, self._replies = self._replies, []
            wrong = errors(replies)
            if wrong:
                self._end(wrong[0])
            else:
                self.on_replies(replies)

    def on_replies(self, replies: list[Any]) -> None:
        raise NotImplementedError

    def connection_lost(self, error: Exception | None) -> None:
        self._end(error or ConnectionError("the server closed the connection"))

    def _end(self, error: Exception | None = None) -> None:
        if not self.ended.done():
            self.ended.set_result(None) if error is None else self.ended.set_exception(error)


class Cycle(Connection):
    """Sends, gets and acknowledges `pipeline` messages at a time, again and again."""

    def __init__(self, dialect: Dialect, pipeline: int, number: int) -> None:
        super().__init__()
        self._dialect = dialect
        self._pipeline = pipeline
        self._sends = b"".join(dialect.send(number * pipeline + place) for place in range(pipeline))
        self._gets = dialect.get(b"c%d" % number) * pipeline
        self._step = self._got_ids
        self.finished = 0

    def go(self) -> None:
        self._step = self._got_ids
        self.ask(self._sends, self._pipeline)

    def on_replies(self, replies: list[Any]) -> None:
        self._step(replies)

    def _got_ids(self, replies: list[Any]) -> None:
        self._step = self._got_messages
        self.ask(self._gets, self._pipeline)

    def _got_messages(self, replies: list[Any]) -> None:
        self._step = self._got_acks
        acks = [self._dialect.ack(self._dialect.id_in(reply)) for reply in replies]
        self.ask(b"".join(acks), self._pipeline)

    def _got_acks(self, replies: list[Any]) -> None:
        if replies != [1] * self._pipeline:
            self._end(ValueError(f"an acknowledgement was refused: {replies}"))
            return
        self.finished += self._pipeline
        self.go()


class Lone(Connection):
    """Sends one message at a time and notes how long each took."""

    def __init__(self, dialect: Dialect, count: int) -> None:
        super().__init__()
        self._data = [dialect.send(number) for number in range(count)]
        self.seconds: list[float] = []

    def go(self) -> None:
        self._began = time.perf_counter()
        self.ask(self._data[len(self.seconds)], 1)

    def on_replies(self, replies: list[Any]) -> None:
        self.seconds.append(time.perf_counter() - self._began)
        if len(self.seconds) == len(self._data):
            self._end()
        else:
            self.go()


class Once(Connection):
    """Writes some commands and is done when they are answered."""

    def on_replies(self, replies: list[Any]) -> None:
        self._end()


async def prepare(port: int, dialect: Dialect) -> None:
    commands = dialect.prepare()
    if commands:
        _, once = await asyncio.get_running_loop().create_connection(Once, LOOPBACK, port)
        once.ask(b"".join(commands), len(commands))
        await once.ended
        once.transport.close()


async def cycles(port: int, dialect: Dialect, connections: int, pipeline: int, seconds: float) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    members = []
    for number in range(connections):
        _, member = await loop.create_connection(lambda number=number: Cycle(dialect, pipeline, number), LOOPBACK, port)  # type: ignore[misc]
        members.append(member)
    for member in members:
        member.go()
    failed = asyncio.gather(*(member.ended for member in members))
    await _unless(failed, WARM_UP_SECONDS)
    before, began, cpu = sum(member.finished for member in members), time.perf_counter(), time.process_time()
    await _unless(failed, seconds)
    after, elapsed, cpu = (
        sum(member.finished for member in members),
        time.perf_counter() - began,
        time.process_time() - cpu,
    )
    failed.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await failed
    return {"messages": after - before, "seconds": elapsed, "load_cores": cpu / elapsed}


async def _unless(failed: asyncio.Future[Any], seconds: float) -> None:
    await asyncio.wait([failed], timeout=seconds)
    if failed.done():
        failed.result()


async def lone(port: int, dialect: Dialect, count: int) -> dict[str, Any]:
    _, member = await asyncio.get_running_loop().create_connection(lambda: Lone(dialect, count), LOOPBACK, port)
    member.go()
    await member.ended
    return {"milliseconds": [took * 1000 for took in member.seconds]}


async def run(kind: str, port: int, dialect: Dialect, numbers: list[str]) -> dict[str, Any]:
    if kind == "prepare":
        await prepare(port, dialect)
        return {}
    if kind == "cycles":
        return await cycles(port, dialect, int(numbers[0]), int(numbers[1]), float(numbers[2]))
    return await lone(port, dialect, int(numbers[0]))


def main() -> None:
    import uvloop

    kind, port, dialect, *numbers = sys.argv[1:]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        print(json.dumps(runner.run(run(kind, int(port), DIALECTS[dialect], numbers))))


if __name__ == "__main__":
    main()
