"""What threads, processes and an event loop have in common: a slot and the work in its hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from penstock.domain.settlement import Nak, Reschedule, Settle
from penstock.workers.outcome import batch_outcomes, outcome_of
from penstock.workers.source import Source
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


def conclude(
    source: Source, several: list[AnyHeld], result: Any, error: BaseException | None, began_at: float
) -> list[Settle | None]:
    """What a handler said becomes what the store is told."""
    seconds = time.monotonic() - began_at
    if source.handler.batch_size is None:
        settle = None if result is None else outcome_of(several[0], result)
        source.finish(several[0], settle, error, seconds)
        return [settle]
    settles = batch_outcomes(several, result)
    for delivery, settle in zip(several, settles, strict=True):
        source.finish(delivery, settle, error, seconds / len(several))
    return settles


def fitting(source: Source, several: list[AnyHeld]) -> tuple[list[AnyHeld], list[Any]]:
    """The messages of a batch that are still ours and whose payload can be decoded, with the payloads. One that does
    not fit is rejected by itself."""
    now = time.monotonic()
    several = [delivery for delivery in several if source.begins(delivery, now)]
    decode = source.handler.signature.decode
    if decode is None:
        return several, []
    fit: list[AnyHeld] = []
    payloads: list[Any] = []
    for delivery in several:
        try:
            payload = decode(delivery)
        except Exception as error:
            source.finish(delivery, outcome_of(delivery, error), error, 0)
        else:
            fit.append(delivery)
            payloads.append(payload)
    return fit, payloads


def comes_again(several: list[AnyHeld], settles: list[Settle | None]) -> bool:
    """Whether one of them is tried again. An ordered queue then gives back what lies behind it in its shard."""
    if any(settle is not None and settle.event in ("nak", "reschedule") for settle in settles):
        return True
    return any(delivery._settled in (Nak, Reschedule) for delivery in several)


def fill_batch(source: Source, first: AnyHeld) -> list[AnyHeld]:
    """More of the same priority, up to the size of a batch."""
    several = [first]
    while len(several) < source.at_once and (more := source.ready.pop(first.priority)) is not None:
        several += more if isinstance(more, list) else [more]
    source.oldest_ready_at = time.monotonic()
    return several


def pieces(source: Source, item: list[AnyHeld]) -> list[list[AnyHeld]]:
    """A shard of an ordered queue in the pieces that a handler is called with, one after the other."""
    return [item[start : start + source.at_once] for start in range(0, len(item), source.at_once)]
