"""Receives of many clients, made as one.

What one command asks for is a share; a pipeline of the same command is several shares of one client. All of them are
received together, and dealt out in the order in which they were asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock.domain.errors import NotFound
from penstock.engines.contract import Engine, Receipt

# So many messages are received whatever their size; of more, only as many as have so many bytes together. An ordered
# queue is the exception: each of several receives has a share of its own.
FEW = 16
MOST_BYTES = 4 * 1024 * 1024
# What a client asks for: the consumer, how many messages, and how many times over.
Wish = tuple[str, int, int]


class _Source:
    """Where wishes are fulfilled. `prepare` is called with the queue before. With a `refusal` the group must be there:
    else that is raised."""

    __slots__ = ("engine", "group", "lease_seconds", "prepare", "queue", "refusal", "wishes")

    def __init__(
        self,
        engine: Engine,
        queue: str,
        group: str | None,
        lease_seconds: float | None,
        prepare: Callable[[str], None] | None,
        refusal: Exception | None,
        wishes: list[Wish],
    ) -> None:
        self.engine = engine
        self.queue = queue
        self.group = group
        self.lease_seconds = lease_seconds
        self.prepare = prepare
        self.refusal = refusal
        self.wishes = wishes

    @property
    def weight(self) -> int:
        """How many messages are asked for."""
        return sum([limit * times for _, limit, times in self.wishes])

    def take(self, wishes: Sequence[Wish]) -> list[list[Receipt]]:
        """To each what it asked for: one receipt for all its shares, or one for each share of an ordered queue."""
        if self.prepare is not None:
            self.prepare(self.queue)
        try:
            return self._take(wishes)
        except NotFound:
            if self.refusal is None:
                raise
            raise self.refusal from None

    def _take(self, wishes: Sequence[Wish]) -> list[list[Receipt]]:
        engine, needs_group = self.engine, self.refusal is not None
        wanted = sum([limit * times for _, limit, times in wishes])
        room = wanted if wanted <= FEW else engine.fitting(self.queue, self.group, wanted, MOST_BYTES)
        if len(wishes) == wishes[0][2] == 1:
            consumer = wishes[0][0]
            receipt = engine.receive(self.queue, self.group, consumer, room, self.lease_seconds, needs_group)
            return [[receipt]]
        if engine.policy(self.queue).ordered:
            # A lease may hold several messages of a key, which must not be worked on side by side.
            shares = [(consumer, limit) for consumer, limit, times in wishes for _ in range(times)]
            receipts = iter(engine.receive_each(self.queue, self.group, shares, self.lease_seconds, needs_group))
            return [[next(receipts) for _ in range(times)] for _, _, times in wishes]
        given = wishes if room == wanted else _cut(wishes, room)
        joint = engine.receive_each(self.queue, self.group, _joined(given), self.lease_seconds, needs_group)
        dealt = _dealt(joint, given)
        return dealt if room == wanted else _marked(dealt, wishes, given)


class Taking(_Source):
    """The operation of one client's receive, alone or together with those of others: `limit` messages."""

    def __init__(
        self,
        engine: Engine,
        queue: str,
        group: str | None,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        prepare: Callable[[str], None] | None = None,
        refusal: Exception | None = None,
    ) -> None:
        super().__init__(engine, queue, group, lease_seconds, prepare, refusal, [(consumer, limit, 1)])

    def __call__(self) -> list[Receipt]:
        return self.take(self.wishes)[0]

    def share(self, others: Sequence[Taking]) -> list[list[Receipt]]:
        return self.take([one.wishes[0] for one in others])


class Takings(_Source):
    """Those of several clients, as one operation."""

    def __call__(self) -> list[list[Receipt]]:
        return self.take(self.wishes)

    def share(self, others: Sequence[Takings]) -> list[list[list[Receipt]]]:
        """For each of them what it gives alone, received as one."""
        shares = iter(self.take([wish for other in others for wish in other.wishes]))
        return [[next(shares) for _ in other.wishes] for other in others]


def _cut(wishes: Sequence[Wish], room: int) -> list[Wish]:
    """The same wishes, of so many messages together; but each of at least one, because none would say that there is
    nothing."""
    cut: list[Wish] = []
    for consumer, limit, times in wishes:
        amount = max(1, min(limit * times, room))
        cut.append((consumer, amount, 1))
        room -= amount
    return cut


def _marked(dealt: list[list[Receipt]], wishes: Sequence[Wish], given: Sequence[Wish]) -> list[list[Receipt]]:
    """There may be more for those who got all that was left of their wish."""
    marked = []
    for receipts, (_, limit, times), (_, amount, _) in zip(dealt, wishes, given, strict=True):
        is_cut = amount < limit * times and len(receipts[0].rows) == amount
        marked.append([msgspec.structs.replace(receipts[0], is_cut=is_cut)])
    return marked


def _joined(wishes: Sequence[Wish]) -> list[tuple[str, int]]:
    """Neighbours that are the same consumer become one share: one lease instead of many."""
    shares: list[tuple[str, int]] = []
    before = None
    for consumer, limit, times in wishes:
        wanted = limit * times
        if consumer == before:
            wanted += shares.pop()[1]
        shares.append((consumer, wanted))
        before = consumer
    return shares


def _dealt(receipts: list[Receipt], wishes: Sequence[Wish]) -> list[list[Receipt]]:
    if len(receipts) == len(wishes):
        return [[receipt] for receipt in receipts]
    joint = iter(receipts)
    receipt, start = next(joint), 0
    dealt: list[list[Receipt]] = []
    for consumer, limit, times in wishes:
        if consumer != receipt.consumer:
            receipt, start = next(joint), 0
        end = start + limit * times
        rows = receipt.rows[start:end]
        dealt.append([Receipt(receipt.token, receipt.queue, receipt.group, consumer, receipt.salt, rows)])
        start = end
    return dealt
