"""Streams: what only the Redis Streams commands need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.engines.contract.receipt import Receipt


class StreamContract(Protocol):
    """Operations of XAUTOCLAIM, XREAD, XINFO and their kin that the queue has no other use for."""

    def clear(self, queue: str) -> bool:
        """Flush the queue and remove all its groups, the primary one included: only the policy is left. Returns whether
        there was anything to remove. The next send creates the primary group again."""

    def take_over(
        self,
        queue: str,
        group: str,
        consumer: str,
        ids: Sequence[str],
        lease_seconds: float,
        counts: bool = True,
        force: bool = False,
    ) -> Receipt:
        """leased -> leased by another consumer: the lease ends as if its time were up (or is released, when the
        attempt must not count) and the message is received anew. What is not in flight is left out; with `force` it is
        received too, out of its turn: unread, passed by, waiting for a retry, or ended (which it then has not)."""

    def reached(self, queue: str, group: str) -> int:
        """The last position that the group has read or was moved past; 0 at the beginning."""

    def fitting(self, queue: str, group: str | None, limit: int, size: int) -> int:
        """How many of the messages that the group would receive next have at most `size` bytes of payload together: at
        most `limit`, at least one. An estimate while others receive too."""

    def places(
        self, queue: str, after: int, upto: int | None, limit: int, *, backwards: bool = False
    ) -> list[tuple[int, int, int]]:
        """For the same messages, without expired ones: position, time sent and payload size of each."""

    def settled(self, queue: str) -> int:
        """The position up to which no message can appear in the queue any more. A reader that follows positions reads
        only up to it: where sends commit out of order, an open transaction may hold an earlier position."""
