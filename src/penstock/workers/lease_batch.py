"""The messages of one receive, until all of them are settled."""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Protocol

from penstock.client.aio.delivery import AsyncDelivery
from penstock.client.delivery import Delivery
from penstock.client.settling import checked
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settle, Settled, Settlement
from penstock.domain.times import SECOND
from penstock.engines.contract import LEASE_ENDS_AT, POSITION, Receipt

# Leases are renewed when this share of them is over: two renewals may fail before one is lost.
RENEW_SHARE = 1 / 3
# A message that waits in a worker is given back after this share of its lease, and after so many seconds at the latest.
WAIT_SHARE = RENEW_SHARE
LONGEST_WAIT_SECONDS = 10.0
EVENTS: dict[type, Event] = {Ack: Event.ACK, Nak: Event.NAK, Reject: Event.REJECT, Reschedule: Event.RESCHEDULE}


class Before(Protocol):
    """Who knows what a handler's own settlement has to wait for."""

    def said_before(self, delivery: Any) -> list[Settle]: ...


class Held(Delivery, eq=False, gc=False):
    """A delivery in a worker, which remembers how its handler has settled it. In an ordered queue the store is
    told what came before at the same time: it settles a lease in order."""

    _settled: Event | None = None
    _before: Before | None = None

    def _settle(self, settlement: Settlement) -> None:
        if self._before is None:
            super()._settle(settlement)
        else:
            settles = [*self._before.said_before(self), checked(settlement, self.queue)]
            _raise_refusal(self._queue._settle(self.group, settles))
        self._settled = EVENTS[type(settlement)]


class AsyncHeld(AsyncDelivery, eq=False, gc=False):
    _settled: Event | None = None
    _before: Before | None = None

    async def _settle(self, settlement: Settlement) -> None:
        if self._before is None:
            await super()._settle(settlement)
        else:
            settles = [*self._before.said_before(self), checked(settlement, self.queue)]
            _raise_refusal(await self._queue._settle(self.group, settles))
        self._settled = EVENTS[type(settlement)]


def _raise_refusal(results: list[Settled]) -> None:
    """Of the handler's own settlement, which is the last."""
    if results[-1].error is not None:
        raise results[-1].error


AnyHeld = Held | AsyncHeld
# What a slot takes at once: one message; or those of one shard of an ordered queue, which are handled one after the
# other. The slot takes them from the left, and whoever gives back what waits takes them from the right.
Item = AnyHeld | deque[AnyHeld]


class LeaseBatch:
    """Slots add to `acked` and `others`; the settler alone removes from them. Times are of the local monotonic clock,
    counted from before the receive was sent: a lease that has ended here may still run in the store, never the other
    way around."""

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
        self.acked: list[AnyHeld] = []
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
        """Nothing of it waits any more."""
        self.give_back_at = math.inf

    def has_ended(self, position: int, now: float) -> bool:
        """Whether the lease of a message has surely ended."""
        if now >= self.ends_at:
            return True
        return bool(self._early) and now >= self._early.get(position, self.ends_at)

    @property
    def left(self) -> int:
        """How many messages have no outcome yet."""
        return self.size - len(self.acked) - len(self.others) - len(self.closed)

    @property
    def is_all_acked(self) -> bool:
        """Acked as a whole, which costs one statement however many they are."""
        return len(self.acked) == self.size

    def open_positions(self) -> list[int]:
        return [row[POSITION] for row in self.receipt.rows if row[POSITION] not in self.closed]


def _early_ends(rows: list[Any], ends_at: float) -> dict[int, float]:
    """Messages whose expiry or deadline ends their lease before that of the others."""
    ends = {row[LEASE_ENDS_AT] for row in rows}
    if len(ends) == 1:
        return {}
    latest = max(ends)
    return {
        row[POSITION]: ends_at - (latest - row[LEASE_ENDS_AT]) / SECOND for row in rows if row[LEASE_ENDS_AT] != latest
    }
