"""A live server under 100,000 nearly right inputs stays up and small, and serves others as if nothing happened."""

from __future__ import annotations

import asyncio
import os
import time
from typing import cast

import pytest
import uvloop

from penstock.servers.resp.parser import Parser
from penstock.settings import Limits
from tests.ports import LOOPBACK
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.wire import Wire, frame
from tests.servers.fuzz.frames import Mutator

INPUTS = 100_000
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "20261115"))
CONNECTIONS = 100
# Caches and arenas are filled by then.
WARM_AFTER = INPUTS // 5
AT_MOST_PER_CONNECTION = 40
# What the server may grow by after that: the pages that SQLite keeps (64 MiB at most) fill with what is stored
# meanwhile. A connection leaves nothing behind.
GROWTH_BYTES = 64 << 20


class Tally:
    """What happened, for the people who read the run."""

    def __init__(self) -> None:
        self.inputs = self.connections = self.checks = 0


@pytest.mark.slow
def test_nothing_that_comes_in_disturbs_the_server(server: PenstockServer) -> None:
    print(f"seed {SEED}")
    began = time.monotonic()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        tally = runner.run(_bombard(server))
    took = time.monotonic() - began
    assert server.is_alive(), server.said()
    print(
        f"{tally.inputs:,} inputs on {tally.connections:,} connections in {took:.0f} s, {tally.checks:,} checks between"
    )
    assert tally.inputs >= INPUTS
    assert tally.checks > 10
    with Wire(server.port) as wire:
        assert wire.call("PING") == b"PONG"
    assert "Traceback" not in server.said(), server.said()
    assert server.stop() == 0


async def _bombard(server: PenstockServer) -> Tally:
    tally = Tally()
    mutator = Mutator(SEED)
    onlookers = [
        asyncio.create_task(_live_normally(server.port, tally)),
        asyncio.create_task(_watch_memory(server, tally)),
    ]
    await asyncio.gather(*(_attack(server.port, mutator, tally) for _ in range(CONNECTIONS)))
    for onlooker in onlookers:
        onlooker.cancel()
    for outcome in await asyncio.gather(*onlookers, return_exceptions=True):
        if not isinstance(outcome, asyncio.CancelledError):
            raise AssertionError("somebody was disturbed") from outcome
    return tally


async def _attack(port: int, mutator: Mutator, tally: Tally) -> None:
    loop = asyncio.get_running_loop()
    while tally.inputs < INPUTS:
        burst, inputs = make_burst(mutator)
        tally.inputs += inputs
        tally.connections += 1
        _, attacker = await loop.create_connection(lambda burst=burst: Attacker(burst), LOOPBACK, port)  # type: ignore[misc]
        await asyncio.wait_for(attacker.ended, 60)


class Attacker(asyncio.Protocol):
    """Says its piece, says that it has no more to say, and waits for the server to hang up."""

    def __init__(self, burst: bytes) -> None:
        self._burst = burst
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        writer = cast(asyncio.WriteTransport, transport)
        writer.write(self._burst)
        writer.write_eof()

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)


def make_burst(mutator: Mutator) -> tuple[bytes, int]:
    """Inputs for one connection: as many as leave the conversation whole, and one that does not."""
    parser = Parser(Limits())
    parser.trust(True)
    inputs: list[bytes] = []
    while len(inputs) < AT_MOST_PER_CONNECTION:
        inputs.append(mutator.input())
        parser.feed(inputs[-1])
        if parser.error is not None or parser.is_midway:
            break
    return b"".join(inputs), len(inputs)


async def _live_normally(port: int, tally: Tally) -> None:
    """Somebody else's connection, which must get every answer right all the while."""
    reader, writer = await asyncio.open_connection(LOOPBACK, port)
    try:
        await _check_answers(reader, writer, tally)
    finally:
        writer.close()


async def _check_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tally: Tally) -> None:
    while True:
        word = b"answer-%d" % tally.checks
        writer.write(frame("ECHO", word) + frame("QADD", "citizen", 60, word))
        assert await reader.readexactly(len(_bulk(word))) == _bulk(word)
        id = await _read_bulk(reader)
        writer.write(frame("QGET", "citizen", "own") + frame("QACK", "citizen", "own", id))
        expected = b"*2\r\n" + _bulk(id) + _bulk(word) + b":1\r\n"
        assert await reader.readexactly(len(expected)) == expected
        tally.checks += 1
        await asyncio.sleep(0.02)  # it shares the machine with what it checks


async def _read_bulk(reader: asyncio.StreamReader) -> bytes:
    header = await reader.readline()
    assert header.startswith(b"$"), header
    return (await reader.readexactly(int(header[1:]) + 2))[:-2]


def _bulk(word: bytes) -> bytes:
    return b"$%d\r\n%s\r\n" % (len(word), word)


async def _watch_memory(server: PenstockServer, tally: Tally) -> None:
    while tally.inputs < WARM_AFTER:
        await asyncio.sleep(0.1)
    before = server.rss_bytes()
    try:
        while True:
            assert server.rss_bytes() < before + GROWTH_BYTES, "the server's memory grows"
            await asyncio.sleep(0.2)
    finally:
        grown = server.rss_bytes() - before
        print(f"memory: {before / 1e6:.0f} MB after {WARM_AFTER:,} inputs, {grown / 1e6:+.1f} MB at the end")
