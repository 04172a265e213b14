"""What was said about entries in flight: XCLAIM may set when an entry was delivered and how often, and whoever reads
its own entries again is given them once more.

The store counts attempts itself and never changes what has happened. So what a client says with IDLE, TIME and
RETRYCOUNT, and how often it has read again, is kept here, beside it, for as long as the lease lasts.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain.observations import LeaseInfo
from penstock.domain.times import EPOCH

MILLISECOND = 1000 * EPOCH.resolution
# Entries spoken of; those spoken of longest ago are forgotten first.
MOST_KEPT = 100_000


class Told(NamedTuple):
    """As XPENDING tells it: milliseconds since the delivery, and the number of deliveries."""

    idle: int
    deliveries: int


class Claims:
    def __init__(self, most: int = MOST_KEPT) -> None:
        self._most = most
        self._said: dict[tuple[int, int], tuple[int | None, int | None]] = {}

    def note(self, token: int, position: int, delivered_at: int | None, deliveries: int | None) -> None:
        """Of one entry under one lease; the time in milliseconds."""
        if delivered_at is None and deliveries is None:
            return
        self._said[token, position] = delivered_at, deliveries
        if len(self._said) > self._most:
            del self._said[next(iter(self._said))]

    def note_again(self, lease: LeaseInfo, now: int) -> None:
        """The consumer was given what it holds once more."""
        self.note(lease.token, lease.position, now, self.told(lease, now).deliveries + 1)

    def told(self, lease: LeaseInfo, now: int) -> Told:
        delivered_at, deliveries = self._said.get((lease.token, lease.position), (None, None))
        if delivered_at is None:
            delivered_at = (lease.leased_at - EPOCH) // MILLISECOND
        return Told(max(0, now - delivered_at), lease.attempt if deliveries is None else deliveries)

    def deliveries_of(self, lease: LeaseInfo) -> int | None:
        """What was said, if anything was."""
        return self._said.get((lease.token, lease.position), (None, None))[1]
