"""Receives of many clients, made as one.

What one command asks for is a share; a pipeline of the same command is several shares of one client. All of them are
received together, and dealt out in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.engines.contract import Engine, Receipt


class Taking:
    """The operation of a receive, alone or for several clients at once: `limit` messages, `times` over. `prepare` is
    called with the queue before it."""

    __slots__ = ("consumer", "engine", "group", "lease_seconds", "limit", "prepare", "queue", "times")

    def __init__(
        self,
        engine: Engine,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        prepare: Callable[[str], None] | None = None,
        times: int = 1,
    ) -> None:
        self.engine = engine
        self.queue = queue
        self.group = group
        self.consumer = consumer
        self.limit = limit
        self.lease_seconds = lease_seconds
        self.prepare = prepare
        self.times = times

    def __call__(self) -> list[Receipt]:
        return self.share([self])[0]

    def share(self, others: Sequence[Taking]) -> list[list[Receipt]]:
        """To each what it asked for: one receipt for all its shares, or one for each share of an ordered queue."""
        if self.prepare is not None:
            self.prepare(self.queue)
        engine = self.engine
        if len(others) == 1 and self.times == 1:
            return [[engine.receive(self.queue, self.group, self.consumer, self.limit, self.lease_seconds)]]
        if engine.policy(self.queue).ordered:
            # A lease may hold several messages of a key, which must not be worked on side by side.
            shares = [(one.consumer, one.limit) for one in others for _ in range(one.times)]
            receipts = iter(engine.receive_each(self.queue, self.group, shares, self.lease_seconds))
            return [[next(receipts) for _ in range(one.times)] for one in others]
        joint = engine.receive_each(self.queue, self.group, _joined(others), self.lease_seconds)
        return _dealt(joint, others)


class Takings:
    """Those of several clients, as one operation."""

    __slots__ = ("takings",)

    def __init__(self, takings: list[Taking]) -> None:
        self.takings = takings

    def __call__(self) -> list[list[Receipt]]:
        return self.takings[0].share(self.takings)

    def share(self, others: Sequence[Takings]) -> list[list[list[Receipt]]]:
        """For each of them what it gives alone, received as one."""
        shares = iter(self.takings[0].share([one for other in others for one in other.takings]))
        return [[next(shares) for _ in other.takings] for other in others]


def _joined(takings: Sequence[Taking]) -> list[tuple[str, int]]:
    """Neighbours that are the same consumer become one share: one lease instead of many."""
    shares: list[tuple[str, int]] = []
    for one in takings:
        wanted = one.limit * one.times
        if shares and shares[-1][0] == one.consumer:
            wanted += shares.pop()[1]
        shares.append((one.consumer, wanted))
    return shares


def _dealt(receipts: list[Receipt], takings: Sequence[Taking]) -> list[list[Receipt]]:
    if len(receipts) == len(takings):
        return [[receipt] for receipt in receipts]
    joint = iter(receipts)
    receipt, start = next(joint), 0
    dealt: list[list[Receipt]] = []
    for one in takings:
        if one.consumer != receipt.consumer:
            receipt, start = next(joint), 0
        end = start + one.limit * one.times
        rows = receipt.rows[start:end]
        dealt.append([Receipt(receipt.token, receipt.queue, receipt.group, one.consumer, receipt.salt, rows)])
        start = end
    return dealt
