"""What threads, processes and an event loop have in common: a slot and the work in its hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from penstock.workers.take import AnyHeld


class Hand:
    """The work of one slot. The claim is there until somebody has the last word on it: the slot itself, or the keeper
    that gives it up. Taking it out of a list is atomic, so only one of them does."""

    def __init__(self) -> None:
        self.delivery: AnyHeld | None = None
        self.several: list[AnyHeld] = []
        self.began_at = 0.0
        self.priority = 0
        self.away = False
        self.given_up: str | None = None
        self._claim: list[bool] = []

    def take_up(self, several: list[AnyHeld], began_at: float) -> None:
        self.began_at = began_at
        self.delivery = several[0]
        self.several = several
        self._claim = [True]

    def put_down(self) -> bool:
        """Whether the work was still in this hand."""
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
    """The handler as it is called; somebody may have put something around it."""

    @property
    def unfinished(self) -> int:
        """How many handlers run or wait for other messages."""

    @property
    def busy(self) -> int:
        """How many run."""

    def running(self) -> list[Hand]: ...

    def kick(self) -> None:
        """There may be something to start."""

    def give_up(self, hand: Hand, reason: str) -> list[AnyHeld]:
        """Take the work out of a hand and free its slot: what it was, to be settled by the caller; nothing when it has
        just ended by itself. The handler is ended where that is possible."""

    def stop(self) -> None:
        """Begin nothing any more."""

    def close(self) -> None:
        """Nothing runs any more: give back what belongs to the slots."""
