"""What a slot does with an item, all but the call itself: a thread makes it, an event loop awaits it.

So each of these is a generator: out come the arguments of the next call of the handler, in goes what came of it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from penstock.domain.lifecycle import Event
from penstock.workers.outcome import batch_outcomes, event_of, outcome_of
from penstock.workers.ready import Item, priority_of
from penstock.workers.slots import Hand
from penstock.workers.source import Source
from penstock.workers.take import AnyHeld

T = TypeVar("T")


class Answer(NamedTuple):
    """What came of a call. An error is its result too."""

    result: Any
    error: BaseException | None = None


Calls = Generator[tuple[Any, ...], Answer, T]


def handle(source: Source, hand: Hand, item: Item, is_stopping: Callable[[], bool]) -> Calls[None]:
    """An item from its first call to its last."""
    hand.priority = priority_of(item)
    if isinstance(item, list):
        yield from _in_order(source, hand, item, is_stopping)
    elif source.handler.batch_size is not None:
        yield from _together(source, hand, _filled(source, item))
    else:
        yield from _alone(source, hand, item)


def _in_order(source: Source, hand: Hand, item: list[AnyHeld], is_stopping: Callable[[], bool]) -> Calls[None]:
    """A shard of an ordered queue, in the pieces that the handler is called with."""
    left = list(item)
    is_batch = source.handler.batch_size is not None
    for start in range(0, len(item), source.at_once):
        several = item[start : start + source.at_once]
        if is_stopping():
            source.release(left, "the worker stops")
            return
        del left[: len(several)]
        again = yield from _together(source, hand, several) if is_batch else _alone(source, hand, several[0])
        if hand.given_up is not None or again:
            source.pass_over(left)
            return


def _alone(source: Source, hand: Hand, delivery: AnyHeld) -> Calls[bool]:
    """Whether the message will come again."""
    began_at = time.monotonic()
    if not source.begins(delivery, began_at):
        return False
    several = [delivery]
    hand.take_up(several, began_at)
    answer = yield (delivery,)
    return finish(source, hand, several, answer, began_at)


def _together(source: Source, hand: Hand, several: list[AnyHeld]) -> Calls[bool]:
    """Whether one of the messages will come again."""
    began_at = time.monotonic()
    several, payloads = _fitting(source, several)
    if not several:
        return False
    hand.take_up(several, began_at)
    answer = yield (several, payloads)
    return finish(source, hand, several, answer, began_at)


def finish(source: Source, hand: Hand, several: list[AnyHeld], answer: Answer, began_at: float) -> bool:
    """What a handler said becomes what the store is told, if it is still this hand's to say."""
    if not hand.put_down():
        return False
    result, error = answer
    if source.handler.batch_size is None:
        delivery = several[0]
        if result is None and delivery._settled is None:
            source.finish_well(delivery, began_at)
            return False
        settles = [None if result is None else outcome_of(delivery, result)]
    else:
        settles = batch_outcomes(several, result)
    seconds = (time.monotonic() - began_at) / len(several)
    for delivery, settle in zip(several, settles, strict=True):
        source.finish(delivery, settle, error, seconds)
    # An ordered queue gives back what lies behind a message of its shard that is tried again.
    return any(event_of(*one) in (Event.NAK, Event.RESCHEDULE) for one in zip(several, settles, strict=True))


def _filled(source: Source, first: AnyHeld) -> list[AnyHeld]:
    """More of the same priority, up to the size of a batch."""
    several = [first]
    while len(several) < source.at_once and (more := source.ready.pop(first.priority)) is not None:
        several += more if isinstance(more, list) else [more]
    source.oldest_ready_at = time.monotonic()
    return several


def _fitting(source: Source, several: list[AnyHeld]) -> tuple[list[AnyHeld], list[Any]]:
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
