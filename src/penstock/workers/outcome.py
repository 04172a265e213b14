"""The settlement that follows from what a handler did, for threads, event loops, processes and tests alike.

1. If the handler settled its delivery itself, that stands (`event_of`), whatever it does afterwards.
2. Otherwise, if it raised: `Reject`, `Reschedule` and `Retry` settle accordingly, any other error is a nak.
3. Otherwise it returned: an ack, unless it returned unfinished work (a coroutine, a future, a generator).

`None` instead of a `Settle` stands for a plain ack.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from typing import Any

from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import Event
from penstock.domain.settlement import Ack, Nak, Reject, Reschedule, Retry, Settle, Signal, error_code, reason_text
from penstock.domain.validation import check_seconds
from penstock.workers.lease_batch import AnyDelivery


def outcome_of(delivery: AnyDelivery, result: Any) -> Settle | None:
    """The settlement that follows from a handler's return value, or from the error it raised."""
    if result is None:
        return None
    if not isinstance(result, BaseException):
        unfinished = _unfinished(result)
        return None if unfinished is None else nak(delivery, unfinished)
    try:
        return _settle(delivery, result)
    except InvalidInput as error:
        return nak(delivery, reason_text(error))


def event_of(delivery: AnyDelivery, settle: Settle | None) -> Event:
    """How the message was settled: by its handler, or by the handler's result."""
    if delivery._settled is not None:
        return delivery._settled
    return Event.ACK if settle is None else settle.event


def _unfinished(result: Any) -> str | None:
    """Why a return value is no success: the work it represents may not have started."""
    if inspect.iscoroutine(result):
        result.close()
        return "the handler returned a coroutine that nobody awaits: define it with `async def`"
    if inspect.isawaitable(result) or callable(getattr(result, "add_done_callback", None)):
        return f"the handler returned a {type(result).__name__} that nobody waits for: wait for its result, then return"
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        return "the handler returned a generator that nobody runs: use its results, then return"
    return None


def _settle(delivery: AnyDelivery, error: BaseException) -> Settle:
    if isinstance(error, Reject):
        return make_settle(Event.REJECT, delivery, _why(error), code=_code(error))
    if isinstance(error, Reschedule):
        delay = max(0, check_seconds("delay_seconds", error.delay_seconds, minimum=-1e18))
        return make_settle(Event.RESCHEDULE, delivery, _why(error), delay)
    if isinstance(error, Retry):
        delay_seconds = error.delay_seconds
        if delay_seconds is not None:
            delay_seconds = max(0, check_seconds("delay_seconds", delay_seconds, minimum=-1e18))
        return make_settle(Event.NAK, delivery, _why(error), delay_seconds, _code(error))
    return make_settle(Event.NAK, delivery, reason_text(error), code=error_code(None, error))


def _why(signal: Signal) -> str | None:
    """The reason given, or the error it was raised from."""
    return reason_text(signal.__cause__ if signal.reason is None else signal.reason)


def _code(signal: Signal) -> str | None:
    """The code given, or that of the error it was raised from."""
    return error_code(signal.code, signal.__cause__ if signal.reason is None else signal.reason)


def nak(delivery: AnyDelivery, reason: str | None) -> Settle:
    return make_settle(Event.NAK, delivery, reason)


def make_settle(
    event: Event,
    delivery: AnyDelivery,
    reason: str | None,
    delay_seconds: float | None = None,
    code: str | None = None,
) -> Settle:
    return Settle(event, delivery.id, delivery.position, delivery.token, reason, delay_seconds, code)


def ack_of(delivery: AnyDelivery) -> Settle:
    return make_settle(Event.ACK, delivery, None)


def batch_outcomes(several: Sequence[AnyDelivery], result: Any) -> list[Settle | None]:
    """The settlement of each message of a batch. A batch handler returns None for success; or one result per message,
    in order, None or an exception; or settlements such as `Nak(delivery, "why")`, which nak the messages that they
    leave out."""
    if result is None or isinstance(result, BaseException):
        return [outcome_of(delivery, result) for delivery in several]
    unfinished = None if inspect.isgenerator(result) else _unfinished(result)
    if unfinished is not None:
        return [nak(delivery, unfinished) for delivery in several]
    results = list(result) if isinstance(result, Iterable) and not isinstance(result, str | bytes) else None
    if results is not None and any(_names_delivery(one) for one in results):
        by_position = {one.delivery.position: one for one in results if _names_delivery(one)}
        return [_outcome_of_settlement(delivery, by_position.get(delivery.position)) for delivery in several]
    if results is None or len(results) != len(several):
        count = f"{len(results)} results" if results is not None else f"{type(result).__name__}"
        why = f"the handler returned {count} for a batch of {len(several)}: return None, or one result for each message"
        return [nak(delivery, why) for delivery in several]
    return [outcome_of(delivery, one) for delivery, one in zip(several, results, strict=True)]


def _names_delivery(one: Any) -> bool:
    return isinstance(one, Ack | Nak) or (isinstance(one, Reject | Reschedule) and one._delivery is not None)


def _outcome_of_settlement(delivery: AnyDelivery, settlement: Any) -> Settle | None:
    if settlement is None:
        return nak(delivery, "the handler gave no outcome for this message of its batch")
    if isinstance(settlement, Ack):
        return None if settlement.reason is None else make_settle(Event.ACK, delivery, reason_text(settlement.reason))
    if isinstance(settlement, Nak):
        return outcome_of(delivery, Retry(settlement.delay_seconds, settlement.reason, code=settlement.code))
    return outcome_of(delivery, settlement)
