"""Overrides of XCLAIM for entries in flight: IDLE and TIME set when an entry was delivered, RETRYCOUNT how often. A
consumer that reads its pending entries again raises the count as well.

The store counts attempts itself and never changes its history, so these overrides are kept in memory for the duration
of the lease.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.domain.results import LeaseInfo
from penstock.domain.timestamps import EPOCH

MILLISECOND = 1000 * EPOCH.resolution
# Entries with overrides; the oldest are forgotten first.
MAX_KEPT = 100_000


class DeliveryStats(NamedTuple):
    """As XPENDING shows it: milliseconds since the delivery, and the number of deliveries."""

    idle: int
    deliveries: int


class ClaimOptions:
    def __init__(self, most: int = MAX_KEPT) -> None:
        self._most = most
        self._kept: dict[tuple[int, int], tuple[int | None, int | None]] = {}

    def note(self, token: int, position: int, delivered_at: int | None, deliveries: int | None) -> None:
        """Set the overrides of one entry under one lease; the time is in milliseconds."""
        if delivered_at is None and deliveries is None:
            return
        self._kept[token, position] = delivered_at, deliveries
        if len(self._kept) > self._most:
            del self._kept[next(iter(self._kept))]

    def note_again(self, lease: LeaseInfo, now: int) -> None:
        """The consumer has read a pending entry again."""
        self.note(lease.token, lease.position, now, self.stats(lease, now).deliveries + 1)

    def stats(self, lease: LeaseInfo, now: int) -> DeliveryStats:
        delivered_at, deliveries = self._kept.get((lease.token, lease.position), (None, None))
        if delivered_at is None:
            delivered_at = (lease.leased_at - EPOCH) // MILLISECOND
        return DeliveryStats(max(0, now - delivered_at), lease.attempt if deliveries is None else deliveries)

    def deliveries_of(self, lease: LeaseInfo) -> int | None:
        """The override, if there is one."""
        return self._kept.get((lease.token, lease.position), (None, None))[1]
