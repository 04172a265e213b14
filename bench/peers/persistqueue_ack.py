"""persist-queue's SQLiteAckQueue: put, get, ack, one message per call, each in a transaction of its own."""

from __future__ import annotations

from pathlib import Path

from persistqueue import SQLiteAckQueue


class PersistqueueAck:
    name = "persist-queue"
    largest_batch = 1

    def __init__(self, folder: Path) -> None:
        self.queue = SQLiteAckQueue(str(folder / "persistqueue"))

    def cycle(self, payloads: list[bytes]) -> int:
        for payload in payloads:
            self.queue.put(payload)
        # Raw items carry their id: without it, ack searches for the item among all that are in flight.
        items = [self.queue.get(block=False, raw=True) for _ in payloads]
        return sum(self.queue.ack(id=item["pqid"]) is not None for item in items)

    def tidy(self) -> None:
        """It searches the next message from the start of its table, past all finished ones."""
        self.queue.clear_acked_data(max_delete=1_000_000, keep_latest=0)

    def durability(self) -> tuple[str, int]:
        connection = self.queue._putter
        return (
            connection.execute("pragma journal_mode").fetchone()[0],
            connection.execute("pragma synchronous").fetchone()[0],
        )

    def close(self) -> None:
        self.queue.close()
