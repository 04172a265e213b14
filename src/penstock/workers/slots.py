"""Slots, as implemented by threads, processes and an event loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from penstock.domain.errors import LeaseLost
from penstock.workers.lease_batch import AnyDelivery
from penstock.workers.source import QueueSource


class WorkSlot:
    """One slot. `_claim` holds one element from the start of a call until its outcome is decided, by the slot or by the
    keeper that gives the call up. `list.pop` is atomic, so only one of them decides."""

    def __init__(self) -> None:
        self.delivery: AnyDelivery | None = None
        self.several: list[AnyDelivery] = []
        self.began_at = 0.0
        self.priority = 0
        self.away = False
        # The slot starts no more calls: its call was given up, or its process died.
        self.is_over = False
        self.given_up: str | None = None
        self._claim: list[bool] = []

    def begin(self, several: list[AnyDelivery], began_at: float) -> None:
        self.began_at = began_at
        self.delivery = several[0]
        self.several = several
        self._claim = [True]

    def end(self) -> bool:
        """Called by the slot; returns whether it decides the outcome. If not, the call was given up, and another slot
        has replaced this one."""
        try:
            self._claim.pop()
        except IndexError:
            self.is_over = True
            self.given_up = self.given_up or "its call was given up"
            return False
        self.delivery = None
        self.several = []
        return True

    def give_up(self, reason: str) -> list[AnyDelivery]:
        """Called by others; returns the messages of the call, none when the call has just ended."""
        several = self.several
        try:
            self._claim.pop()
        except IndexError:
            return []
        self.delivery = None
        self.several = []
        self.given_up, self.is_over = reason, True
        return several


class Slots(ABC):
    """The slots that run the handler of one source: threads, processes, or tasks of an event loop."""

    def __init__(self, source: QueueSource) -> None:
        self.source = source
        # The handler, possibly wrapped by tracing.
        self.call: Callable[..., Any] = source.handler.signature.call
        self._busy = 0
        self._away = 0
        self._stopping = False

    @property
    @abstractmethod
    def capacity(self) -> int:
        """How many calls can run concurrently now; 0 when the handlers are stuck."""

    @property
    def can_grow(self) -> bool:
        """Whether `grow` would do anything."""
        return False

    @property
    def busy(self) -> int:
        """How many handlers run."""
        return self._busy

    @property
    def unfinished(self) -> int:
        """How many handlers run or wait for other messages."""
        return self._busy + self._away

    @property
    @abstractmethod
    def stuck(self) -> int:
        """How many handlers were given up but still run, because they cannot be killed."""

    @property
    @abstractmethod
    def is_stuck(self) -> bool:
        """Whether too many are stuck to start more."""

    @abstractmethod
    def running(self) -> list[WorkSlot]: ...

    def start(self) -> None:  # noqa: B027  # nothing to do by default
        """The worker starts."""

    def grow(self) -> None:  # noqa: B027  # nothing to do by default
        """There are messages for more calls than `capacity`: raise it, if that is possible."""

    @abstractmethod
    def notify(self) -> None:
        """The buffer may have an item to start."""

    @abstractmethod
    def give_up(self, slot: WorkSlot, reason: str) -> list[AnyDelivery]:
        """Free a slot whose call takes too long, and end the handler where possible. Returns its messages, which the
        caller settles; none when the call has just ended."""

    @abstractmethod
    def stop(self) -> None:
        """Start no more calls."""

    def close(self) -> None:  # noqa: B027  # nothing to do by default
        """After the last call: release threads and processes."""

    def _count_out(self, slot: WorkSlot) -> None:
        """The call of a slot was given up."""
        if slot.away:
            self._away -= 1
        else:
            self._busy -= 1

    def _count_away(self, slot: WorkSlot) -> None:
        """The handler waits for another message."""
        slot.away = True
        self._busy -= 1
        self._away += 1

    def _count_back(self, slot: WorkSlot) -> None:
        """The handler has waited and occupies the slot again."""
        if slot.given_up is not None:
            raise LeaseLost(f"the message was given up while its handler waited: {slot.given_up}")
        if slot.away:
            slot.away = False
            self._away -= 1
            self._busy += 1

    def _free_priority_slot(self) -> None:
        if self.source.priority_slots is not None:
            self.source.priority_slots.leave()
