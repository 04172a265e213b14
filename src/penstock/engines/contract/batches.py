"""Batches: messages that are held until started, and end together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.domain.message import Draft
from penstock.domain.results import BatchInfo, MessagePage


class BatchContract(Protocol):
    """A batch has a number; numbers increase. A call means the newest batch of the name, or with `after` the first
    batch of the name after that number, whether it exists already or not."""

    def batch_mark(self, queue: str, name: str, opens: bool) -> int:
        """The number before the batch that a caller means now: before the newest. With `opens`, a batch that has ended
        is not meant: the number before the next one."""

    def batch_open(
        self, queue: str, name: str, end: Draft | None, abort: Draft | None, after: int | None = None
    ) -> BatchInfo:
        """Create the batch unless it exists, and set its end or abort message when given. A newest batch that has ended
        is replaced by a new one; with `after` that is BatchClosed."""

    def batch_start(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        """held -> ready for its members; an empty batch ends at once. Starting again changes nothing."""

    def batch_cancel(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        """held, ready -> cancelled for its members; the abort message follows when those in flight have ended."""

    def batch(self, queue: str, name: str, after: int | None = None) -> BatchInfo:
        """State and counts of the batch; NotFound when there is none."""

    def batches(self, queue: str) -> list[BatchInfo]:
        """The batches of the queue, newest first."""

    def cancelled(self, queue: str, group: str, positions: Sequence[int]) -> list[bool]:
        """For each message in flight in the group, whether its batch was cancelled."""

    def members(self, queue: str, name: str, number: int | None, limit: int, after: str | None) -> MessagePage:
        """The members of a batch, ended ones included, with their states in the primary group: those in the log by
        position, then held ones. `number` is `after` of the other calls; `after` continues from a page."""
