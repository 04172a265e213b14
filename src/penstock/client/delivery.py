"""A delivery: a message handed to a consumer under a lease. It is what you settle."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.client.view import DeliveryView
from penstock.domain.errors import LeaseLost
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settlement
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_seconds


class Delivery(DeliveryView, eq=False, gc=False):
    _queue: Any  # the Queue it came from; not named here, because the two modules would need each other

    def ack(self, reason: str | None = None) -> None:
        """Done. Raises LeaseLost when the lease is no longer ours; the same holds for the other settlements."""
        self._settle(Ack(self, reason))

    def nak(self, reason: Any = None, delay_seconds: float | None = None, code: str | int | None = None) -> None:
        """Try again after the backoff, or after `delay_seconds`. The reason may be an exception. The code is one by
        which programs know the error; `queue.wait` raises it when the message has failed."""
        self._settle(Nak(self, reason, delay_seconds, code))

    def reject(self, reason: Any = None, code: str | int | None = None) -> None:
        """Never try again: a dead letter at once."""
        self._settle(Reject(self, reason, code=code))

    def reschedule(self, delay_seconds: float = 3600, reason: Any = None) -> None:
        """Later, with attempts starting again."""
        self._settle(Reschedule(self, delay_seconds, reason))

    def extend(self, seconds: float) -> datetime:
        """Keep the lease until `seconds` from now, and give back its new end."""
        check_seconds("seconds", seconds, above=True)
        lease = [(self.token, self.position)]
        ends = self._queue.executor.write(
            lambda: self._queue.engine.extend(self._queue.name, self.group, lease, seconds)
        )
        if ends[0] is None:
            raise LeaseLost(f"lease {self.token} on message {self.id} was lost: it ended, was settled or taken over")
        self._row = (*self._row[:-1], ends[0])
        return to_time(ends[0])

    def is_cancelled(self) -> bool:
        """Whether the batch of this message was cancelled meanwhile: a handler may stop early. Acked now, the message
        still counts as succeeded; whatever else would try it again ends it as cancelled."""
        queue, position = self._queue, self.position
        cancelled = self._queue.executor.read(lambda: queue.engine.cancelled(self.queue, self.group, [position]))
        return bool(cancelled[0])

    def _settle(self, settlement: Settlement) -> None:
        settled = self._queue._settle_one(settlement)
        if settled.error is not None:
            raise settled.error
