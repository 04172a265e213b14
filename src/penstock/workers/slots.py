"""What threads, processes and an event loop have in common: a slot, and the messages that its handler works on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.workers.lease_batch import AnyHeld


class WorkSlot:
    """One slot. `_claim` holds one element from the start of a call until somebody decides its outcome: the slot, or
    the keeper that gives the call up. Taking it out of a list is atomic, so only one of them does."""

    def __init__(self) -> None:
        self.delivery: AnyHeld | None = None
        self.several: list[AnyHeld] = []
        self.began_at = 0.0
        self.priority = 0
        self.away = False
        # The slot starts no other call: its call was given up, or its process has died.
        self.is_over = False
        self.given_up: str | None = None
        self._claim: list[bool] = []

    def begin(self, several: list[AnyHeld], began_at: float) -> None:
        self.began_at = began_at
        self.delivery = several[0]
        self.several = several
        self._claim = [True]

    def end(self) -> bool:
        """By the slot itself: whether the outcome is its own to decide. If not, its call was given up, and another slot
        has taken its place."""
        if self._take_claim():
            return True
        self.is_over = True
        self.given_up = self.given_up or "its call was given up"
        return False

    def give_up(self, reason: str) -> list[AnyHeld]:
        """By somebody else: the messages of the call; none when it has just ended by itself."""
        several = self.several
        if not self._take_claim():
            return []
        self.given_up, self.is_over = reason, True
        return several

    def _take_claim(self) -> bool:
        try:
            self._claim.pop()
        except IndexError:
            return False
        self.delivery = None
        self.several = []
        return True


class Slots(Protocol):
    """Everything that runs the handler of one source."""

    call: Callable[..., Any]
    """The handler as it is called; tracing may have wrapped it."""

    @property
    def capacity(self) -> int:
        """How many calls could run at the same time now; 0 when the handlers are stuck."""

    @property
    def can_grow(self) -> bool:
        """Whether `grow` would do anything."""

    @property
    def unfinished(self) -> int:
        """How many handlers run or wait for other messages."""

    @property
    def busy(self) -> int:
        """How many run."""

    @property
    def stuck(self) -> int:
        """How many handlers were given up and still run, because they cannot be ended."""

    @property
    def is_stuck(self) -> bool:
        """Whether so many are stuck that nothing more is started."""

    def running(self) -> list[WorkSlot]: ...

    def start(self) -> None:
        """The worker starts."""

    def grow(self) -> None:
        """There are messages for more calls than `capacity`: raise it, if that is possible."""

    def kick(self) -> None:
        """There may be something to start."""

    def give_up(self, slot: WorkSlot, reason: str) -> list[AnyHeld]:
        """Free a slot whose call takes too long: its messages, to be settled by the caller; none when the call has just
        ended by itself. The handler is ended where that is possible."""

    def stop(self) -> None:
        """Begin nothing any more."""

    def close(self) -> None:
        """Nothing runs any more: release what belongs to the slots."""
