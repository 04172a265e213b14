"""Receives of many clients from one group, merged into one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import msgspec

from penstock.client.aio.call import Operation, Phase
from penstock.client.aio.executor import AsyncExecutor
from penstock.domain.errors import NotFound
from penstock.engines.contract import Engine, Receipt
from penstock.servers.reply_size import MAX_BYTES, SMALL_LIMIT

MAX_OPERATIONS = 1_000


class ReceiveRequest(msgspec.Struct, frozen=True, gc=False):
    """A client requests `limit` messages for each of `times` commands."""

    consumer: str
    limit: int
    times: int = 1

    @property
    def total(self) -> int:
        return self.limit * self.times


# Makes the exception for a group that does not exist, from its queue and its name.
Refusal = Callable[[str, str | None], Exception]


class SharedReceives:
    """The receive operations of a server, cached, because only calls of the identical operation are coalesced."""

    def __init__(self, executor: AsyncExecutor) -> None:
        self._executor = executor
        self.operation = lru_cache(MAX_OPERATIONS)(self._make)

    def _make(
        self,
        queue: str,
        group: str | None,
        lease_seconds: float | None,
        prepare: Callable[[str], None] | None = None,
        refusal: Refusal | None = None,
    ) -> Operation:
        """An operation on `ReceiveRequest`s, whose results are lists of receipts."""
        receive = SharedReceive(self._executor.engine, queue, group, lease_seconds, prepare, refusal)
        key = ("receive", queue, group, lease_seconds, prepare is None, refusal is None)
        return Operation(receive, Phase.RECEIVE, key, self._release)

    def _release(self, outcome: list[list[Receipt]]) -> None:
        for receipts in outcome:
            for receipt in receipts:
                self._executor.release(receipt)


class SharedReceive(msgspec.Struct, frozen=True, eq=False):
    """Receives for all requests at once and distributes the messages in the order of the requests: one receipt per
    request, or one per command if the queue is ordered.

    `prepare` is called with the queue first. With `refusal` the group must exist, or the exception that it returns is
    raised.
    """

    engine: Engine
    queue: str
    group: str | None
    lease_seconds: float | None
    prepare: Callable[[str], None] | None
    refusal: Refusal | None

    def __call__(self, requests: Sequence[ReceiveRequest]) -> list[list[Receipt]]:
        if self.prepare is not None:
            self.prepare(self.queue)
        first, needs_group = requests[0], self.refusal is not None
        try:
            if len(requests) == first.times == 1 and first.limit <= SMALL_LIMIT:
                receive, lease_seconds = self.engine.receive, self.lease_seconds
                return [[receive(self.queue, self.group, first.consumer, first.limit, lease_seconds, needs_group)]]
            return self._receive(requests, needs_group)
        except NotFound:
            if self.refusal is None:
                raise
            raise self.refusal(self.queue, self.group) from None

    def _receive(self, requests: Sequence[ReceiveRequest], needs_group: bool) -> list[list[Receipt]]:
        engine, queue, group = self.engine, self.queue, self.group
        wanted = sum([one.limit * one.times for one in requests])
        room = wanted if wanted <= SMALL_LIMIT else engine.fitting(queue, group, wanted, MAX_BYTES)
        if len(requests) == requests[0].times == 1:
            return [[engine.receive(queue, group, requests[0].consumer, room, self.lease_seconds, needs_group)]]
        if engine.policy(queue).ordered:
            # A lease may hold several messages of a key, which must not be processed concurrently.
            single = [ReceiveRequest(one.consumer, one.limit) for one in requests for _ in range(one.times)]
            shares = [(one.consumer, one.limit) for one in _cut(single, room)]
            receipts = iter(engine.receive_each(queue, group, shares, self.lease_seconds, needs_group))
            return [[next(receipts) for _ in range(one.times)] for one in requests]
        given = requests if room == wanted else _cut(requests, room)
        joint = engine.receive_each(queue, group, _shares(given), self.lease_seconds, needs_group)
        dealt = _deal(joint, given)
        return dealt if room == wanted else _mark_cut(dealt, requests, given)


def _cut(requests: Sequence[ReceiveRequest], room: int) -> list[ReceiveRequest]:
    """Reduce the requests to `room` messages in total, each to at least one: an empty receipt means an empty queue."""
    cut: list[ReceiveRequest] = []
    for one in requests:
        amount = max(1, min(one.total, room))
        cut.append(ReceiveRequest(one.consumer, amount))
        room -= amount
    return cut


def _mark_cut(
    dealt: list[list[Receipt]], requests: Sequence[ReceiveRequest], given: Sequence[ReceiveRequest]
) -> list[list[Receipt]]:
    """Mark the receipts of requests that were cut and filled: there may be more messages for them."""
    marked = []
    for receipts, wanted, cut in zip(dealt, requests, given, strict=True):
        is_cut = cut.limit < wanted.total and len(receipts[0].rows) == cut.limit
        marked.append([msgspec.structs.replace(receipts[0], is_cut=is_cut)])
    return marked


def _shares(requests: Sequence[ReceiveRequest]) -> list[tuple[str, int]]:
    """Consecutive requests of one consumer become one share, and so one lease."""
    shares: list[tuple[str, int]] = []
    before = None
    for one in requests:
        wanted = one.total
        if one.consumer == before:
            wanted += shares.pop()[1]
        shares.append((one.consumer, wanted))
        before = one.consumer
    return shares


def _deal(receipts: list[Receipt], requests: Sequence[ReceiveRequest]) -> list[list[Receipt]]:
    if len(receipts) == len(requests):
        return [[receipt] for receipt in receipts]
    joint = iter(receipts)
    receipt, start = next(joint), 0
    dealt: list[list[Receipt]] = []
    for one in requests:
        if one.consumer != receipt.consumer:
            receipt, start = next(joint), 0
        end = start + one.total
        rows = receipt.rows[start:end]
        dealt.append([Receipt(receipt.token, receipt.queue, receipt.group, one.consumer, receipt.salt, rows)])
        start = end
    return dealt
