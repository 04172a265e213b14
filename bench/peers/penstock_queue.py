"""Penstock: send_many, receive, ack_many."""

from __future__ import annotations

from pathlib import Path

import penstock
from penstock.engines.sqlite.engine import SqliteEngine


class PenstockQueue:
    name = "penstock"
    largest_batch = 1_000_000

    def __init__(self, folder: Path) -> None:
        self.url = f"sqlite:///{folder / 'penstock.db'}"
        self.store = penstock.connect(self.url)
        self.queue = self.store.queue("bench", lease_seconds=3600)

    def cycle(self, payloads: list[bytes]) -> int:
        if len(payloads) == 1:
            self.queue.send(payloads[0])
        else:
            self.queue.send_many(payloads)
        return self.queue.ack_many(self.queue.receive(limit=len(payloads)))

    def tidy(self) -> None:
        """Finished messages are kept for a day at no cost."""

    def durability(self) -> tuple[str, int]:
        engine = self.store.engine
        assert isinstance(engine, SqliteEngine)
        with engine.database.write() as transaction:
            return transaction.value("pragma journal_mode"), transaction.value("pragma synchronous")

    def close(self) -> None:
        self.store.close()
