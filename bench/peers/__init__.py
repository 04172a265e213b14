"""Who is measured. One file per contender, each used the fastest way that its own documentation shows, all of them
with the same durability: a write-ahead log, and a commit that is on the disk when it returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from bench.peers.huey_storage import HueyStorage
from bench.peers.litequeue_queue import LitequeueQueue
from bench.peers.penstock_queue import PenstockQueue
from bench.peers.persistqueue_ack import PersistqueueAck


class Peer(Protocol):
    name: str
    largest_batch: int
    """How many messages it can move at once; more are moved in several goes."""

    def cycle(self, payloads: list[bytes]) -> int:
        """Send, receive and ack all of these; how many were acked."""

    def tidy(self) -> None:
        """Remove what is finished, if the contender grows slower by keeping it. Not measured."""

    def durability(self) -> tuple[str, int]:
        """The journal mode and the synchronous level, read back from its own connection."""

    def close(self) -> None: ...


PENSTOCK = PenstockQueue.name
PEERS: dict[str, Callable[[Path], Peer]] = {
    PenstockQueue.name: PenstockQueue,
    HueyStorage.name: HueyStorage,
    LitequeueQueue.name: LitequeueQueue,
    PersistqueueAck.name: PersistqueueAck,
}


class NotDurable(Exception):
    """Check that all contenders have the same durability."""


def opened(name: str, folder: Path) -> Peer:
    peer = PEERS[name](folder)
    found = peer.durability()
    if found != ("wal", 2):
        peer.close()
        raise NotDurable(f"{name} runs with journal mode {found[0]!r} and synchronous {found[1]}, not wal and 2 (full)")
    return peer
