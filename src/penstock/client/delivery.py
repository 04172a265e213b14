"""A delivery: a message handed to a consumer under a lease. It is what you settle."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from penstock.client.view import DeliveryView
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Settlement, lease_lost_error
from penstock.domain.timestamps import to_time
from penstock.domain.validation import check_seconds


class Delivery(DeliveryView, eq=False, gc=False):
    _queue: Any  # its Queue; the type would be a circular import

    def ack(self, reason: str | None = None) -> None:
        """The message succeeded. Raises LeaseLost when the lease is no longer held, as the other settlements do."""
        self._settle(Ack(self, reason))

    def nak(self, reason: Any = None, delay_seconds: float | None = None, code: str | int | None = None) -> None:
        """Retry after the backoff, or after `delay_seconds`. The reason may be an exception. `code` is a
        machine-readable error code, which `queue.wait` raises when the message has failed."""
        self._settle(Nak(self, reason, delay_seconds, code))

    def reject(self, reason: Any = None, code: str | int | None = None) -> None:
        """Do not retry: the message becomes a dead letter at once."""
        self._settle(Reject(self, reason, code=code))

    def reschedule(self, delay_seconds: float = 3600, reason: Any = None) -> None:
        """Deliver again after a delay, with attempts reset."""
        self._settle(Reschedule(self, delay_seconds, reason))

    def extend(self, seconds: float) -> datetime:
        """Extend the lease to `seconds` from now; returns its new end."""
        check_seconds("seconds", seconds, above=True)
        lease = [(self.token, self.position)]
        ends = self._queue.executor.write(
            lambda: self._queue.engine.extend(self._queue.name, self.group, lease, seconds)
        )
        if ends[0] is None:
            raise lease_lost_error(self.token, self.id)
        self._row = (*self._row[:-1], ends[0])
        return to_time(ends[0])

    def is_cancelled(self) -> bool:
        """Whether the batch of this message was cancelled, so that a handler can stop early. An ack still makes it
        succeed; a settlement that would retry it ends it as cancelled."""
        queue, position = self._queue, self.position
        cancelled = self._queue.executor.read(lambda: queue.engine.cancelled(self.queue, self.group, [position]))
        return bool(cancelled[0])

    def _settle(self, settlement: Settlement) -> None:
        settled = self._queue._settle_one(settlement)
        if settled.error is not None:
            raise settled.error
