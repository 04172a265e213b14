# Generated from src/penstock/client/delivery.py by scripts/twin.py: change that file and run the script.
"""A delivery: a message handed to a consumer under a lease. It is what you settle."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.client.view import DeliveryView
from penstock.domain.errors import LeaseLost
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settlement
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_seconds


class AsyncDelivery(DeliveryView, eq=False, gc=False):
    _queue: Any  # the AsyncQueue it came from; not named here, because the two modules would need each other

    async def ack(self, reason: str | None = None) -> None:
        """Done. Raises LeaseLost when the lease is no longer ours; the same holds for the other settlements."""
        await self._settle(Ack(self, reason))

    async def nak(self, reason: Any = None, delay_seconds: float | None = None, code: str | int | None = None) -> None:
        """Try again after the backoff, or after `delay_seconds`. The reason may be an exception. The code is one by
        which programs know the error; `queue.wait` raises it when the message has failed."""
        await self._settle(Nak(self, reason, delay_seconds, code))

    async def reject(self, reason: Any = None, code: str | int | None = None) -> None:
        """Never try again: a dead letter at once."""
        await self._settle(Reject(self, reason, code=code))

    async def reschedule(self, delay_seconds: float = 3600, reason: Any = None) -> None:
        """Later, with attempts starting again."""
        await self._settle(Reschedule(self, delay_seconds, reason))

    async def extend(self, seconds: float) -> datetime:
        """Keep the lease until `seconds` from now, and give back its new end."""
        check_seconds("seconds", seconds, above=True)
        lease = [(self.token, self.position)]
        ends = await self._queue.executor.write(
            lambda: self._queue.engine.extend(self._queue.name, self.group, lease, seconds)
        )
        if ends[0] is None:
            raise LeaseLost(f"lease {self.token} on message {self.id} was lost: it ended, was settled or taken over")
        self._row = (*self._row[:-1], ends[0])
        return to_time(ends[0])

    async def is_cancelled(self) -> bool:
        """Whether the batch of this message was cancelled meanwhile: a handler may stop early. Acked now, the message
        still counts as succeeded; whatever else would try it again ends it as cancelled."""
        queue, position = self._queue, self.position
        cancelled = await self._queue.executor.read(lambda: queue.engine.cancelled(self.queue, self.group, [position]))
        return bool(cancelled[0])

    async def _settle(self, settlement: Settlement) -> None:
        settled = await self._queue._settle_one(settlement)
        if settled.error is not None:
            raise settled.error
