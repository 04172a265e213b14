"""Settling: what a consumer says of a delivery, and what follows from it.

`decide` is the only place that turns an event on a leased message into its next state; engines write down what it
says. The steps it may take are those of the lifecycle table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

import msgspec

from penstock.domain.errors import InvalidInput, LeaseLost, OutOfOrder
from penstock.domain.lifecycle import Event, State
from penstock.domain.policy import Policy
from penstock.domain.retry import backoff_seconds, has_retries
from penstock.domain.times import microseconds


class Leased(Protocol):
    """The part of a delivery that a settlement needs."""

    @property
    def id(self) -> str: ...
    @property
    def token(self) -> int: ...
    @property
    def group(self) -> str: ...
    @property
    def position(self) -> int: ...


class Ack(msgspec.Struct, frozen=True):
    """Done: the message succeeded."""

    delivery: Leased
    reason: str | None = None


class Nak(msgspec.Struct, frozen=True):
    """Try again: after the backoff, or after `delay_seconds`."""

    delivery: Leased
    reason: str | None = None
    delay_seconds: float | None = None


class Signal(Exception):
    """What a handler may raise instead of settling. It is no error of Penstock and stands in no error tree: it says
    what shall become of the message, as `Retry` does, or of a delivery that is named, as `Reject` and `Reschedule` do
    when they are handed to `settle`."""

    reason: Any = None

    def __init__(self, delivery: Leased | None, reason: Any) -> None:
        super().__init__(*(() if reason is None else (reason,)))
        self._delivery = delivery
        self.reason = reason

    @property
    def delivery(self) -> Leased:
        if self._delivery is None:
            name = type(self).__name__
            raise InvalidInput(f"this {name} names no delivery: raise it in a handler, or write {name}(delivery, ...)")
        return self._delivery


class Reject(Signal):
    """Never: the message becomes a dead letter at once. `Reject(delivery, "why")` settles that delivery;
    `raise Reject("why")` in a handler settles the one it was called for."""

    @overload
    def __init__(self, delivery: Leased, reason: Any = None) -> None: ...
    @overload
    def __init__(self, reason: Any = None, /) -> None: ...
    def __init__(self, delivery: Any = None, reason: Any = None) -> None:
        if delivery is None or isinstance(delivery, str | BaseException):
            delivery, reason = None, reason if delivery is None else delivery
        super().__init__(delivery, reason)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._delivery, self.reason)


class Reschedule(Signal):
    """Later, with attempts starting again; `expires_at` moves by the same delay. `Reschedule(delivery, 60)` settles
    that delivery; `raise Reschedule(60)` in a handler settles the one it was called for."""

    delay_seconds: float = 3600

    @overload
    def __init__(self, delivery: Leased, delay_seconds: float = 3600, reason: Any = None) -> None: ...
    @overload
    def __init__(self, delay_seconds: float = 3600, reason: Any = None, /) -> None: ...
    def __init__(self, delivery: Any = None, delay_seconds: Any = None, reason: Any = None) -> None:
        if delivery is None or isinstance(delivery, int | float):
            said = [value for value in (delivery, delay_seconds, reason) if value is not None]
            delay_seconds = said.pop(0) if said and isinstance(said[0], int | float) else None
            delivery, reason = None, said[0] if said else None
        super().__init__(delivery, reason)
        if delay_seconds is not None:
            self.delay_seconds = delay_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._delivery, self.delay_seconds, self.reason)


class Retry(Signal):
    """Try again, after the queue's backoff or after `delay_seconds`: `raise Retry(5, "the gateway is busy")`."""

    def __init__(self, delay_seconds: float | None = None, reason: Any = None) -> None:
        if isinstance(delay_seconds, str | BaseException):
            delay_seconds, reason = None, delay_seconds
        super().__init__(None, reason)
        self.delay_seconds = delay_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay_seconds, self.reason)


Settlement = Ack | Nak | Reject | Reschedule


class Settle(msgspec.Struct, frozen=True):
    """A checked settlement on its way into an engine."""

    event: Event
    id: str
    position: int
    token: int
    reason: str | None = None
    delay_seconds: float | None = None


class Settled(msgspec.Struct, frozen=True):
    """The result of one settlement: the state it led to, or why it changed nothing."""

    id: str
    state: State | None
    error: LeaseLost | OutOfOrder | None = None

    @property
    def ok(self) -> bool:
        return self.error is None


def lease_lost(settle: Settle) -> Settled:
    lost = LeaseLost(
        f"lease {settle.token} on message {settle.id} was lost: it ended, was settled or was taken over; "
        f"the {settle.event} changed nothing"
    )
    return Settled(settle.id, None, lost)


def out_of_order(settle: Settle) -> Settled:
    refused = OutOfOrder(
        f"message {settle.id} comes after another one of its lease that is still in flight, and the queue is ordered: "
        f"settle that one first, or both in one call; the {settle.event} changed nothing"
    )
    return Settled(settle.id, None, refused)


class Attempt(msgspec.Struct, frozen=True):
    """A leased message as `decide` sees it."""

    attempt: int
    expires_at: int | None
    deadline_at: int | None
    batch_cancelled: bool = False


class Verdict(msgspec.Struct, frozen=True):
    """Where a leased message goes. `due_at` and `attempt` matter only while it stays live."""

    event: Event
    state: State
    due_at: int = 0
    attempt: int = 0
    expires_at: int | None = None


def decide(
    event: Event,
    leased: Attempt,
    policy: Policy,
    now: int,
    random: Callable[[], float],
    delay_seconds: float | None = None,
) -> Verdict:
    if event is Event.ACK:
        return Verdict(event, State.SUCCEEDED)
    if event is Event.REJECT:
        return Verdict(event, State.REJECTED)
    if event is Event.NAK:
        return _decide_nak(leased, policy, now, random, delay_seconds)
    if event is Event.RESCHEDULE:
        return _decide_reschedule(leased, now, delay_seconds or 0)
    if event is Event.RELEASE:
        return _again(event, leased, now, 0, leased.attempt - 1)
    if event is Event.LEASE_END:
        return _decide_lease_end(leased, policy, now)
    raise ValueError(f"{event} does not happen to a leased message")


def would_end(event: Event, attempt: int, policy: Policy) -> bool:
    """Whether the message would end by what its consumer says. In an ordered queue nothing may end before what comes
    before it in the same lease: that one may have to be tried again."""
    return event in (Event.ACK, Event.REJECT) or (event is Event.NAK and not has_retries(policy, attempt))


def _decide_nak(
    leased: Attempt, policy: Policy, now: int, random: Callable[[], float], delay_seconds: float | None
) -> Verdict:
    too_late = policy.at_most_once and leased.deadline_at is not None and leased.deadline_at <= now
    if too_late or not has_retries(policy, leased.attempt):
        return Verdict(Event.NAK, State.FAILED)
    if delay_seconds is None:
        delay_seconds = backoff_seconds(policy, leased.attempt, random)
    return _again(Event.NAK, leased, now, delay_seconds, leased.attempt)


def _decide_reschedule(leased: Attempt, now: int, delay_seconds: float) -> Verdict:
    moved = leased.expires_at
    if moved is not None:
        moved += microseconds(max(0, delay_seconds))
    return _again(Event.RESCHEDULE, leased, now, delay_seconds, 0, moved)


def _decide_lease_end(leased: Attempt, policy: Policy, now: int) -> Verdict:
    if leased.expires_at is not None and leased.expires_at <= now:
        return Verdict(Event.EXPIRE, State.EXPIRED)
    if policy.at_most_once:
        if leased.deadline_at is not None and leased.deadline_at <= now:
            return Verdict(Event.DEADLINE, State.EXPIRED)
        return Verdict(Event.LEASE_END, State.LEASE_EXPIRED)
    if not has_retries(policy, leased.attempt):
        return Verdict(Event.LEASE_END, State.FAILED)
    return _again(Event.LEASE_END, leased, now, 0, leased.attempt)


def _again(
    event: Event, leased: Attempt, now: int, delay_seconds: float, attempt: int, expires_at: int | None = None
) -> Verdict:
    """Live again, unless the batch was cancelled meanwhile."""
    if leased.batch_cancelled:
        return Verdict(event, State.CANCELLED)
    delay = microseconds(max(0, delay_seconds))
    state = State.HELD if delay else State.READY
    return Verdict(event, state, now + delay, attempt, leased.expires_at if expires_at is None else expires_at)


def lease_end(leased: Attempt, now: int, lease_seconds: float) -> int:
    """When a lease given now ends: a deadline that is still ahead, or the expiry, ends it early."""
    end = now + microseconds(lease_seconds)
    for limit in (leased.expires_at, leased.deadline_at):
        if limit is not None and now < limit < end:
            end = limit
    return end


def spoken(value: Any) -> str | None:
    """A reason as text that can be stored. Exceptions are the commonest reason there is, and a settlement must not fail
    because its reason cannot be shown: file names that are not UTF-8 reach Python as lone surrogates."""
    if value is None:
        return None
    try:
        text = str(value)
    except Exception:
        text = ""
    if isinstance(value, BaseException):
        text = f"{type(value).__name__}: {text}" if text else type(value).__name__
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()
