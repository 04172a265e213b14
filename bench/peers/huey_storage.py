"""huey's SqliteStorage: one message per call, and no ack: a message that was taken out is gone, also when its consumer
crashes. So its cycle has one step less."""

from __future__ import annotations

from pathlib import Path

from huey.storage import SqliteStorage


class HueyStorage:
    name = "huey"
    largest_batch = 1

    def __init__(self, folder: Path) -> None:
        self.storage = SqliteStorage("bench", filename=str(folder / "huey.db"), fsync=True, journal_mode="wal")

    def cycle(self, payloads: list[bytes]) -> int:
        for payload in payloads:
            self.storage.enqueue(payload)
        return sum(self.storage.dequeue() is not None for _ in payloads)

    def tidy(self) -> None:
        """It keeps no finished messages."""

    def durability(self) -> tuple[str, int]:
        connection = self.storage.conn
        return (
            connection.execute("pragma journal_mode").fetchone()[0],
            connection.execute("pragma synchronous").fetchone()[0],
        )

    def close(self) -> None:
        self.storage.close()
