"""Receiving for several clients at once: they ask together, and are served by one receive.

What was received is dealt out to them and settled message by message, so it does not matter that they share a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

import msgspec

from penstock.engines.contract import Engine, Receipt


class Taking:
    """The operation of a receive, alone or for several clients; `prepare` is called with the queue before it."""

    __slots__ = ("consumer", "engine", "group", "lease_seconds", "limit", "prepare", "queue")

    def __init__(
        self,
        engine: Engine,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        prepare: Callable[[str], None] | None = None,
    ) -> None:
        self.engine = engine
        self.queue = queue
        self.group = group
        self.consumer = consumer
        self.limit = limit
        self.lease_seconds = lease_seconds
        self.prepare = prepare

    def __call__(self) -> Receipt:
        return self.share([self])[0]

    def share(self, others: Sequence[Taking]) -> list[Receipt]:
        if self.prepare is not None:
            self.prepare(self.queue)
        engine = self.engine
        if len(others) == 1:
            return [engine.receive(self.queue, self.group, self.consumer, self.limit, self.lease_seconds)]
        shares = [(one.consumer, one.limit) for one in others]
        if engine.policy(self.queue).ordered:
            # A lease may hold several messages of a key, which must not be worked on side by side.
            return engine.receive_each(self.queue, self.group, shares, self.lease_seconds)
        receipts = engine.receive_each(self.queue, self.group, _joined(shares), self.lease_seconds)
        return list(_dealt(receipts, shares))


def _joined(shares: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Neighbours that are the same consumer become one share: one lease instead of many."""
    return [
        (consumer, sum(limit for _, limit in several)) for consumer, several in groupby(shares, key=lambda one: one[0])
    ]


def _dealt(receipts: list[Receipt], shares: list[tuple[str, int]]) -> Iterator[Receipt]:
    """What was received jointly, to each what it asked for."""
    joint = iter(receipts)
    for _, several in groupby(shares, key=lambda one: one[0]):
        receipt = next(joint)
        start = 0
        for _, limit in several:
            yield msgspec.structs.replace(receipt, rows=receipt.rows[start : start + limit])
            start += limit
