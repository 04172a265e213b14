# Generated from src/penstock/client/delivery.py by scripts/twin.py: change that file and run the script.
"""A delivery: a message handed to a consumer under a lease. It is what you settle."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.client.view import DeliveryView
from penstock.domain.errors import LeaseLost
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settlement
from penstock.domain.times import check_seconds, to_time


class AsyncDelivery(DeliveryView, eq=False, gc=False):
    _queue: Any  # the AsyncQueue it came from; not named here, because the two modules would need each other

    async def ack(self, reason: str | None = None) -> None:
        """Done. Raises LeaseLost when the lease is no longer ours; the same holds for the other settlements."""
        await self._settle(Ack(self, reason))

    async def nak(self, reason: Any = None, delay_seconds: float | None = None) -> None:
        """Try again after the backoff, or after `delay_seconds`. The reason may be an exception."""
        await self._settle(Nak(self, reason, delay_seconds))

    async def reject(self, reason: Any = None) -> None:
        """Never try again: a dead letter at once."""
        await self._settle(Reject(self, reason))

    async def reschedule(self, delay_seconds: float = 3600, reason: Any = None) -> None:
        """Later, with attempts starting again."""
        await self._settle(Reschedule(self, delay_seconds, reason))

    async def extend(self, seconds: float) -> datetime:
        """Keep the lease until `seconds` from now, and give back its new end."""
        check_seconds("seconds", seconds, above=True)
        lease = [(self.token, self.position)]
        ends = await self._queue._run(lambda: self._queue.engine.extend(self._queue.name, self.group, lease, seconds))
        if ends[0] is None:
            raise LeaseLost(f"lease {self.token} on message {self.id} was lost: it ended, was settled or taken over")
        self._row = (*self._row[:-1], ends[0])
        return to_time(ends[0])

    async def _settle(self, settlement: Settlement) -> None:
        settled = await self._queue._settle_one(settlement)
        if settled.error is not None:
            raise settled.error
