"""Penstock as a contender on any database server: send_many, receive, ack_many."""

from __future__ import annotations

import penstock
from bench.plan import payload

QUEUE = "bench"


def prepare(url: str) -> None:
    with penstock.connect(url) as store:
        store.migrate()
        store.queue(QUEUE, lease_seconds=3600)


class PenstockSession:
    def __init__(self, url: str) -> None:
        self.store = penstock.connect(url)
        self.queue = self.store.queue(QUEUE)

    def send(self, count: int) -> None:
        if count == 1:
            self.queue.send(payload(0))
        else:
            self.queue.send_many([payload(number) for number in range(count)])

    def take(self, count: int) -> int:
        deliveries = self.queue.receive(limit=count)
        return self.queue.ack_many(deliveries) if deliveries else 0

    def waiting(self) -> int:
        return sum(group.available for group in self.queue.stats().values())

    def close(self) -> None:
        self.store.close()
