"""The steps of a slot for one item, without the handler's call itself, which a thread makes and an event loop awaits.

Each function is a generator: it yields the arguments of the next call and receives its result.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeVar

from penstock.domain.lifecycle import Event
from penstock.workers.buffer import emptied
from penstock.workers.lease_batch import AnyDelivery, Item
from penstock.workers.outcome import batch_outcomes, event_of, outcome_of
from penstock.workers.slots import WorkSlot
from penstock.workers.source import STOPPING, QueueSource

T = TypeVar("T")


class CallResult(NamedTuple):
    """The result of a handler call; for an error, `result` is the error as well."""

    result: Any
    error: BaseException | None = None


Calls = Generator[tuple[Any, ...], CallResult, T]


def handle(source: QueueSource, slot: WorkSlot, item: Item, is_stopping: Callable[[], bool]) -> Calls[None]:
    """Make all calls that an item needs."""
    if isinstance(item, deque):
        yield from _in_order(source, slot, item, is_stopping)
    elif source.handler.batch_size is not None:
        yield from _together(source, slot, _filled(source, item))
    else:
        yield from _alone(source, slot, item)


def _in_order(
    source: QueueSource, slot: WorkSlot, shard: deque[AnyDelivery], is_stopping: Callable[[], bool]
) -> Calls[None]:
    """A shard of an ordered queue, in order, as many messages per call as the handler takes."""
    is_batch = source.handler.batch_size is not None
    while not is_stopping() and (several := _next(shard, source.at_once)):
        again = yield from _together(source, slot, several) if is_batch else _alone(source, slot, several[0])
        if slot.given_up is not None or again:
            source.pass_over(emptied(shard))
            return
    source.release(emptied(shard), STOPPING)


def _next(shard: deque[AnyDelivery], most: int) -> list[AnyDelivery]:
    several: list[AnyDelivery] = []
    while len(several) < most:
        try:
            several.append(shard.popleft())
        except IndexError:  # empty, or the rest was released
            break
    return several


def _alone(source: QueueSource, slot: WorkSlot, delivery: AnyDelivery) -> Calls[bool]:
    """Returns whether the message will be retried."""
    began_at = time.monotonic()
    if not source.begins(delivery, began_at):
        return False
    several = [delivery]
    slot.priority = delivery.priority
    slot.begin(several, began_at)
    answer = yield (delivery,)
    return finish(source, slot, several, answer, began_at)


def _together(source: QueueSource, slot: WorkSlot, several: list[AnyDelivery]) -> Calls[bool]:
    """Returns whether one of the messages will be retried."""
    began_at = time.monotonic()
    several, payloads = _fitting(source, several)
    if not several:
        return False
    slot.priority = several[0].priority
    slot.begin(several, began_at)
    answer = yield (several, payloads)
    return finish(source, slot, several, answer, began_at)


def finish(
    source: QueueSource, slot: WorkSlot, several: list[AnyDelivery], answer: CallResult, began_at: float
) -> bool:
    """Queue the outcome of a call for settlement, unless the call was given up meanwhile."""
    if not slot.end():
        return False
    result, error = answer
    if source.handler.batch_size is None:
        delivery = several[0]
        if result is None and delivery._settled is None:
            source.finish_acked(delivery, began_at)
            return False
        settles = [None if result is None else outcome_of(delivery, result)]
    else:
        settles = batch_outcomes(several, result)
    seconds = (time.monotonic() - began_at) / len(several)
    for delivery, settle in zip(several, settles, strict=True):
        source.finish(delivery, settle, error, seconds)
    # An ordered queue releases the messages behind one that is retried.
    return any(event_of(*one) in (Event.NAK, Event.RESCHEDULE) for one in zip(several, settles, strict=True))


def _filled(source: QueueSource, first: AnyDelivery) -> list[AnyDelivery]:
    """Fill the batch with messages of the same priority."""
    several = [first]
    while len(several) < source.at_once and (more := source.buffer.pop(first.priority)) is not None:
        several += more if isinstance(more, deque) else [more]
    source.oldest_buffered_at = time.monotonic()
    return several


def _fitting(source: QueueSource, several: list[AnyDelivery]) -> tuple[list[AnyDelivery], list[Any]]:
    """The messages of a batch whose lease is still held and whose payload can be decoded, with the payloads. A message
    that cannot be decoded is settled alone."""
    now = time.monotonic()
    several = [delivery for delivery in several if source.begins(delivery, now)]
    decode = source.handler.signature.decode
    if decode is None:
        return several, []
    fit: list[AnyDelivery] = []
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
