"""litequeue: put, pop, done. Its `transaction()` puts many in at once and marks many done; `pop` takes one at a time in
a transaction of its own."""

from __future__ import annotations

from pathlib import Path

from litequeue import LiteQueue


class LitequeueQueue:
    name = "litequeue"
    largest_batch = 1_000

    def __init__(self, folder: Path) -> None:
        self.queue = LiteQueue(str(folder / "litequeue.db"))
        # Its default is NORMAL, which may lose the last commits in a power cut.
        self.queue.conn.execute("pragma synchronous = full")

    def cycle(self, payloads: list[bytes]) -> int:
        self._put(payloads)
        messages = [self.queue.pop() for _ in payloads]
        if len(messages) == 1:
            self.queue.done(messages[0].message_id)
        else:
            with self.queue.transaction():
                for message in messages:
                    self.queue.done(message.message_id)
        return len(messages)

    def _put(self, payloads: list[bytes]) -> None:
        if len(payloads) == 1:
            self.queue.put(payloads[0].decode())
            return
        with self.queue.transaction():
            for payload in payloads:
                self.queue.put(payload.decode())

    def tidy(self) -> None:
        self.queue.prune()

    def durability(self) -> tuple[str, int]:
        connection = self.queue.conn
        return (
            connection.execute("pragma journal_mode").fetchone()[0],
            connection.execute("pragma synchronous").fetchone()[0],
        )

    def close(self) -> None:
        self.queue.close()
