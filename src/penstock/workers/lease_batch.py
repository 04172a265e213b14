"""The messages of one receive until all are settled."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Protocol

from penstock.client.aio.delivery import AsyncDelivery
from penstock.client.delivery import Delivery
from penstock.client.settlements import checked
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settle, Settled, Settlement
from penstock.domain.timestamps import SECOND
from penstock.engines.contract import LEASE_ENDS_AT, POSITION, Receipt

# Leases are renewed after this share of their duration: two renewals may fail before a lease is lost.
RENEW_SHARE = 1 / 3
# A buffered message is released after this share of its lease, and after LONGEST_WAIT_SECONDS at the latest.
WAIT_SHARE = RENEW_SHARE
LONGEST_WAIT_SECONDS = 10.0
EVENTS: dict[type, Event] = {Ack: Event.ACK, Nak: Event.NAK, Reject: Event.REJECT, Reschedule: Event.RESCHEDULE}


class PrecedingSettlements(Protocol):
    """Knows the settlements that must reach the store before the one of a handler."""

    def preceding(self, delivery: Any) -> list[Settle]: ...


class WorkerDelivery(Delivery, eq=False, gc=False):
    """A delivery in a worker; remembers how its handler settled it. In an ordered queue it sends the settlements of the
    messages before it along, because a lease is settled in order."""

    _settled: Event | None = None
    _before: PrecedingSettlements | None = None

    def _settle(self, settlement: Settlement) -> None:
        if self._before is None:
            super()._settle(settlement)
        else:
            settles = [*self._before.preceding(self), checked(settlement, self.queue)]
            _raise_refusal(self._queue.executor.settle(self._queue.name, self.group, settles))
        self._settled = EVENTS[type(settlement)]


class AsyncWorkerDelivery(AsyncDelivery, eq=False, gc=False):
    _settled: Event | None = None
    _before: PrecedingSettlements | None = None

    async def _settle(self, settlement: Settlement) -> None:
        if self._before is None:
            await super()._settle(settlement)
        else:
            settles = [*self._before.preceding(self), checked(settlement, self.queue)]
            _raise_refusal(await self._queue.executor.settle(self._queue.name, self.group, settles))
        self._settled = EVENTS[type(settlement)]


def _raise_refusal(results: list[Settled]) -> None:
    """Raise the error of the handler's own settlement, which is the last one."""
    if results[-1].error is not None:
        raise results[-1].error


AnyDelivery = WorkerDelivery | AsyncWorkerDelivery
# What a slot takes from the buffer: a message, or the messages of one shard of an ordered queue, which are handled in
# order. The slot pops from the left; a release pops from the right.
Item = AnyDelivery | deque[AnyDelivery]


class LeaseBatch:
    """Slots append to `acked` and `others`; only the settler removes from them. Times are local monotonic times,
    counted from before the receive was sent: a lease never ends later here than in the store."""

    __slots__ = (
        "_early",
        "acked",
        "closed",
        "ends_at",
        "give_back_at",
        "items",
        "others",
        "receipt",
        "renew_at",
        "size",
        "touched_at",
    )

    def __init__(
        self, receipt: Receipt, items: list[Item], asked_at: float, lease_seconds: float, gather_seconds: float = 0
    ) -> None:
        self.receipt = receipt
        self.items = items
        self.size = len(receipt.rows)
        self.acked: list[AnyDelivery] = []
        self.others: list[Settle] = []
        self.closed: set[int] = set()
        self.touched_at: float | None = None
        self.ends_at = 0.0
        self.renew_at = 0.0
        self.give_back_at = asked_at + gather_seconds + min(lease_seconds * WAIT_SHARE, LONGEST_WAIT_SECONDS)
        self._early = _early_ends(receipt.rows, asked_at + lease_seconds)
        self.renewed(asked_at, lease_seconds)

    def renewed(self, at: float, lease_seconds: float) -> None:
        self.ends_at = at + lease_seconds
        self.renew_at = at + lease_seconds * RENEW_SHARE

    def given_back(self) -> None:
        """Nothing of it is buffered any more."""
        self.give_back_at = math.inf

    def has_ended(self, position: int, now: float) -> bool:
        """Whether the lease of a message has ended for certain."""
        if now >= self.ends_at:
            return True
        return bool(self._early) and now >= self._early.get(position, self.ends_at)

    @property
    def left(self) -> int:
        """How many messages have no outcome yet."""
        return self.size - len(self.acked) - len(self.others) - len(self.closed)

    @property
    def is_all_acked(self) -> bool:
        """Whether the receive can be acked as a whole, by one statement."""
        return len(self.acked) == self.size

    def open_positions(self) -> list[int]:
        return [row[POSITION] for row in self.receipt.rows if row[POSITION] not in self.closed]


def _early_ends(rows: list[Any], ends_at: float) -> dict[int, float]:
    """Ends of leases that an expiry or a deadline cuts short, by position."""
    ends = {row[LEASE_ENDS_AT] for row in rows}
    if len(ends) == 1:
        return {}
    latest = max(ends)
    return {
        row[POSITION]: ends_at - (latest - row[LEASE_ENDS_AT]) / SECOND for row in rows if row[LEASE_ENDS_AT] != latest
    }
