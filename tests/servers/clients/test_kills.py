"""`kill -9` of a busy server: what it had acknowledged is still true after a restart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import penstock
from tests.conformance.engines import ENGINES, EngineRow
from tests.servers.clients.processes import PenstockServer
from tests.servers.clients.queue_status import counts, until
from tests.servers.clients.wire import Closed, Wire, frame

PRODUCERS = 6
CONSUMERS = 2
# Confirmed by each life of the server before it is killed in the midst of more.
SENDS, ACKS = 500, 50


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES, ids=lambda row: row.name)
def test_no_acknowledged_message_is_lost(engine: EngineRow, tmp_path: Path) -> None:
    sent: set[bytes] = set()
    done: set[bytes] = set()
    again: list[bytes] = []
    with PenstockServer(tmp_path, url=engine.fresh_url(tmp_path)) as server:
        for life in range(3):
            server.start()
            workers = [
                *(_started(_produce, server.port, f"{life}-{number}", sent) for number in range(PRODUCERS)),
                *(_started(_consume, server.port, done, again) for _ in range(CONSUMERS)),
            ]
            sends, acks = len(sent) + SENDS, len(done) + ACKS
            until(lambda sends=sends, acks=acks: len(sent) >= sends and len(done) >= acks)  # type: ignore[misc]
            server.kill()
            for worker in workers:
                worker.join()
        server.start()
        with Wire(server.port) as wire:
            found = _drained(server.url)
            assert counts(wire.call, "q", "audit")["available"] == 0
            assert server.stop() == 0
    print(f"{len(sent):,} sends and {len(done):,} acknowledgements were confirmed before the kills")
    # A group that never read finds everything that was ever confirmed, and nothing twice.
    assert len(found) == len(set(found))
    assert sent <= set(found)
    assert not again, "a message was handed out after it had been acknowledged"


def _started(work: Callable[..., None], *arguments: object) -> threading.Thread:
    def until_killed() -> None:
        try:
            work(*arguments)
        except (Closed, OSError):
            return

    thread = threading.Thread(target=until_killed)
    thread.start()
    return thread


def _produce(port: int, name: str, sent: set[bytes]) -> None:
    """Eight at a time; noted as sent only when the server has said so."""
    with Wire(port) as wire:
        number = 0
        while True:
            payloads = [f"{name}-{number + place}".encode() for place in range(8)]
            wire.send(b"".join(frame("QADD", "q", 3600, payload) for payload in payloads))
            for payload in payloads:
                assert wire.read().kind == "$"
                sent.add(payload)
            number += 8


def _consume(port: int, done: set[bytes], again: list[bytes]) -> None:
    with Wire(port) as wire:
        while True:
            got = wire.call("QGET", "q", "workers", "EX", 600)
            if got is None:
                wire.call("QNOTIFY", "workers", 1, "q")
                continue
            if got[0] in done:
                again.append(got[0])
            if wire.call("QACK", "q", "workers", got[0]) == 1:
                done.add(got[0])


def _drained(url: str) -> list[bytes]:
    """What a group that never read finds, taken out through Python: thousands at once."""
    found: list[bytes] = []
    with penstock.connect(url) as store:
        while deliveries := store.queue("q").receive(limit=1000, group="audit"):
            store.queue("q").ack_many(deliveries)
            found += [delivery.payload for delivery in deliveries]
    return found
