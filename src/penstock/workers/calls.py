"""What a slot does with an item, all but the call itself: a thread makes it, an event loop awaits it.

So each of these is a generator: out come the arguments of the next call of the handler, in goes what came of it.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from penstock.domain.lifecycle import Event
from penstock.workers.buffer import emptied
from penstock.workers.lease_batch import AnyHeld, Item
from penstock.workers.outcome import batch_outcomes, event_of, outcome_of
from penstock.workers.slots import WorkSlot
from penstock.workers.source import Source

T = TypeVar("T")


class Answer(NamedTuple):
    """What came of a call. An error is its result too."""

    result: Any
    error: BaseException | None = None


Calls = Generator[tuple[Any, ...], Answer, T]


def handle(source: Source, slot: WorkSlot, item: Item, is_stopping: Callable[[], bool]) -> Calls[None]:
    """An item from its first call to its last."""
    if isinstance(item, deque):
        yield from _in_order(source, slot, item, is_stopping)
    elif source.handler.batch_size is not None:
        yield from _together(source, slot, _filled(source, item))
    else:
        yield from _alone(source, slot, item)


def _in_order(source: Source, slot: WorkSlot, shard: deque[AnyHeld], is_stopping: Callable[[], bool]) -> Calls[None]:
    """A shard of an ordered queue, in the pieces that the handler is called with."""
    is_batch = source.handler.batch_size is not None
    while not is_stopping() and (several := _next(shard, source.at_once)):
        again = yield from _together(source, slot, several) if is_batch else _alone(source, slot, several[0])
        if slot.given_up is not None or again:
            source.pass_over(emptied(shard))
            return
    source.release(emptied(shard), "the worker stops")


def _next(shard: deque[AnyHeld], most: int) -> list[AnyHeld]:
    several: list[AnyHeld] = []
    while len(several) < most:
        try:
            several.append(shard.popleft())
        except IndexError:  # the rest was given back, or there is none
            break
    return several


def _alone(source: Source, slot: WorkSlot, delivery: AnyHeld) -> Calls[bool]:
    """Whether the message will come again."""
    began_at = time.monotonic()
    if not source.begins(delivery, began_at):
        return False
    several = [delivery]
    slot.priority = delivery.priority
    slot.begin(several, began_at)
    answer = yield (delivery,)
    return finish(source, slot, several, answer, began_at)


def _together(source: Source, slot: WorkSlot, several: list[AnyHeld]) -> Calls[bool]:
    """Whether one of the messages will come again."""
    began_at = time.monotonic()
    several, payloads = _fitting(source, several)
    if not several:
        return False
    slot.priority = several[0].priority
    slot.begin(several, began_at)
    answer = yield (several, payloads)
    return finish(source, slot, several, answer, began_at)


def finish(source: Source, slot: WorkSlot, several: list[AnyHeld], answer: Answer, began_at: float) -> bool:
    """Hand over the outcome of a call to be settled, unless the call was given up meanwhile."""
    if not slot.end():
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
    while len(several) < source.at_once and (more := source.buffer.pop(first.priority)) is not None:
        several += more if isinstance(more, deque) else [more]
    source.oldest_buffered_at = time.monotonic()
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
