"""Settlements, and the transition that follows from each.

`decide` chooses the next state of a leased message, among the transitions of the lifecycle table. The engines written
in Python call it; PostgreSQL decides inside the server, and a test proves both equal over generated cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, overload

import msgspec

from penstock.domain.errors import InvalidInput, LeaseLost, OutOfOrder
from penstock.domain.lifecycle import Event, State, can_lead_to
from penstock.domain.policy import Policy
from penstock.domain.retry import backoff_seconds, has_retries
from penstock.domain.timestamps import microseconds
from penstock.domain.validation import check_name, shown


class Leased(Protocol):
    """The fields of a delivery that a settlement needs."""

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
    """Retry, after the backoff or after `delay_seconds`. `code` is a machine-readable error code."""

    delivery: Leased
    reason: str | None = None
    delay_seconds: float | None = None
    code: str | int | None = None


class Signal(Exception):
    """Raised by a handler to settle its message in a certain way, as `Retry`, `Reject` and `Reschedule` do. Not a
    `PenstockError`. `Reject` and `Reschedule` with a delivery are settlements for `settle` as well."""

    reason: Any = None
    code: str | int | None = None

    def __init__(self, delivery: Leased | None, reason: Any, code: str | int | None = None) -> None:
        super().__init__(*(() if reason is None else (reason,)))
        self._delivery = delivery
        self.reason = reason
        self.code = code

    @property
    def delivery(self) -> Leased:
        if self._delivery is None:
            name = type(self).__name__
            raise InvalidInput(f"this {name} names no delivery: raise it in a handler, or write {name}(delivery, ...)")
        return self._delivery


class Reject(Signal):
    """Do not retry: the message becomes a dead letter at once. `Reject(delivery, "why")` settles that delivery;
    `raise Reject("why")` in a handler settles the one it was called for."""

    @overload
    def __init__(self, delivery: Leased, reason: Any = None, *, code: str | int | None = None) -> None: ...
    @overload
    def __init__(self, reason: Any = None, /, *, code: str | int | None = None) -> None: ...
    def __init__(self, delivery: Any = None, reason: Any = None, *, code: str | int | None = None) -> None:
        if delivery is None or isinstance(delivery, str | BaseException):
            delivery, reason = None, reason if delivery is None else delivery
        super().__init__(delivery, reason, code)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._delivery, self.reason), {"code": self.code}


class Reschedule(Signal):
    """Deliver later, with attempts reset; `expires_at` moves by the same delay. `Reschedule(delivery, 60)` settles
    that delivery; `raise Reschedule(60)` in a handler settles the one it was called for."""

    delay_seconds: float = 3600

    @overload
    def __init__(self, delivery: Leased, delay_seconds: float = 3600, reason: Any = None) -> None: ...
    @overload
    def __init__(self, delay_seconds: float = 3600, reason: Any = None, /) -> None: ...
    def __init__(self, delivery: Any = None, delay_seconds: Any = None, reason: Any = None) -> None:
        if delivery is None or isinstance(delivery, int | float):
            given = [value for value in (delivery, delay_seconds, reason) if value is not None]
            delay_seconds = given.pop(0) if given and isinstance(given[0], int | float) else None
            delivery, reason = None, given[0] if given else None
        super().__init__(delivery, reason)
        if delay_seconds is not None:
            self.delay_seconds = delay_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._delivery, self.delay_seconds, self.reason)


class Retry(Signal):
    """Retry, after the queue's backoff or after `delay_seconds`: `raise Retry(5, "the gateway is busy")`."""

    def __init__(
        self, delay_seconds: float | None = None, reason: Any = None, *, code: str | int | None = None
    ) -> None:
        if isinstance(delay_seconds, str | BaseException):
            delay_seconds, reason = None, delay_seconds
        super().__init__(None, reason, code)
        self.delay_seconds = delay_seconds

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.delay_seconds, self.reason), {"code": self.code}


Settlement = Ack | Nak | Reject | Reschedule


class Settle(msgspec.Struct, frozen=True):
    """A validated settlement, as engines take it."""

    event: Event
    id: str
    position: int
    token: int
    reason: str | None = None
    delay_seconds: float | None = None
    code: str | None = None


class Settled(msgspec.Struct, frozen=True):
    """The result of one settlement: the new state, or the error that prevented it. `is_repeat` is set when the same
    token had settled the message in the same way before."""

    id: str
    state: State | None
    error: LeaseLost | OutOfOrder | None = None
    is_repeat: bool = False

    def __eq__(self, other: object) -> bool:
        """A repeated settlement equals the first one."""
        return isinstance(other, Settled) and self._result == other._result

    def __hash__(self) -> int:
        return hash(self._result)

    @property
    def _result(self) -> tuple[object, ...]:
        return self.id, self.state, self.error

    @property
    def ok(self) -> bool:
        return self.error is None


def lease_lost(settle: Settle) -> Settled:
    return Settled(settle.id, None, lease_lost_error(settle.token, settle.id, f"; the {settle.event} changed nothing"))


def lease_lost_error(token: int, message_id: str, consequence: str = "") -> LeaseLost:
    return LeaseLost(
        f"lease {token} on message {message_id} was lost: it ended, was settled or was taken over{consequence}"
    )


def out_of_order(settle: Settle) -> Settled:
    refused = OutOfOrder(
        f"message {settle.id} comes after another one of its lease that is still in flight, and the queue is ordered: "
        f"settle that one first, or both in one call; the {settle.event} changed nothing"
    )
    return Settled(settle.id, None, refused)


class Attempt(msgspec.Struct, frozen=True):
    """The facts about a leased message that `decide` needs."""

    attempt: int
    expires_at: int | None
    deadline_at: int | None
    batch_cancelled: bool = False


class Decision(msgspec.Struct, frozen=True):
    """The transition of a leased message. `due_at` and `attempt` matter only while it stays live."""

    event: Event
    state: State
    due_at: int = 0
    attempt: int = 0
    expires_at: int | None = None

    def __post_init__(self) -> None:
        if not can_lead_to(self.event, self.state):
            raise ValueError(f"{self.event} does not lead to {self.state}: domain/lifecycle.py has no such transition")


def decide(
    event: Event,
    leased: Attempt,
    policy: Policy,
    now: int,
    random: Callable[[], float],
    delay_seconds: float | None = None,
) -> Decision:
    if event is Event.ACK:
        return Decision(event, State.SUCCEEDED)
    if event is Event.REJECT:
        return Decision(event, State.REJECTED)
    if event is Event.NAK:
        return _decide_nak(leased, policy, now, random, delay_seconds)
    if event is Event.RESCHEDULE:
        return _decide_reschedule(leased, now, delay_seconds or 0)
    if event is Event.RELEASE:
        return _live_again(event, leased, now, 0, leased.attempt - 1)
    if event is Event.LEASE_END:
        return _decide_lease_end(leased, policy, now)
    raise ValueError(f"{event} does not happen to a leased message")


def would_end(event: Event, attempt: int, policy: Policy) -> bool:
    """Whether the settlement would end the message. In an ordered queue no message may end before the earlier ones of
    its lease, because those may have to be retried."""
    return event in (Event.ACK, Event.REJECT) or (event is Event.NAK and not has_retries(policy, attempt))


def _decide_nak(
    leased: Attempt, policy: Policy, now: int, random: Callable[[], float], delay_seconds: float | None
) -> Decision:
    too_late = policy.at_most_once and leased.deadline_at is not None and leased.deadline_at <= now
    if too_late or not has_retries(policy, leased.attempt):
        return Decision(Event.NAK, State.FAILED)
    if delay_seconds is None:
        delay_seconds = backoff_seconds(policy, leased.attempt, random)
    return _live_again(Event.NAK, leased, now, delay_seconds, leased.attempt)


def _decide_reschedule(leased: Attempt, now: int, delay_seconds: float) -> Decision:
    moved = leased.expires_at
    if moved is not None:
        moved += microseconds(max(0, delay_seconds))
    return _live_again(Event.RESCHEDULE, leased, now, delay_seconds, 0, moved)


def _decide_lease_end(leased: Attempt, policy: Policy, now: int) -> Decision:
    if leased.expires_at is not None and leased.expires_at <= now:
        return Decision(Event.EXPIRE, State.EXPIRED)
    if policy.at_most_once:
        if leased.deadline_at is not None and leased.deadline_at <= now:
            return Decision(Event.DEADLINE, State.EXPIRED)
        return Decision(Event.LEASE_END, State.LEASE_EXPIRED)
    if not has_retries(policy, leased.attempt):
        return Decision(Event.LEASE_END, State.FAILED)
    return _live_again(Event.LEASE_END, leased, now, 0, leased.attempt)


def _live_again(
    event: Event, leased: Attempt, now: int, delay_seconds: float, attempt: int, expires_at: int | None = None
) -> Decision:
    """Live again, or cancelled if the batch was cancelled meanwhile."""
    if leased.batch_cancelled:
        return Decision(event, State.CANCELLED)
    delay = microseconds(max(0, delay_seconds))
    state = State.HELD if delay else State.READY
    return Decision(event, state, now + delay, attempt, leased.expires_at if expires_at is None else expires_at)


def lease_end(leased: Attempt, now: int, lease_seconds: float) -> int:
    """The end of a lease granted now. A later deadline or the expiry ends it early."""
    end = now + microseconds(lease_seconds)
    for limit in (leased.expires_at, leased.deadline_at):
        if limit is not None and now < limit < end:
            end = limit
    return end


def is_held(leased: Attempt, ends_at: int, now: int) -> bool:
    """Whether the token of a lease that ends at `ends_at` and was not reclaimed still settles. A lease cut short by the
    deadline of its message may be reclaimed from then on; until it is, its consumer may still settle."""
    if ends_at > now:
        return True
    is_over = leased.expires_at is not None and leased.expires_at <= now
    return ends_at == leased.deadline_at and not is_over


def extended_end(leased: Attempt, ends_at: int, now: int, lease_seconds: float) -> int:
    """The end of a lease that is extended now: never earlier than before, and unchanged once it has ended."""
    return ends_at if ends_at <= now else max(ends_at, lease_end(leased, now, lease_seconds))


def reason_text(value: Any) -> str | None:
    """A reason, often an exception, as text that can be stored. Never fails: an error in `__str__` is ignored, and lone
    surrogates (from file names that are not UTF-8) are escaped."""
    if value is None:
        return None
    try:
        text = str(value)
    except Exception:
        text = ""
    if isinstance(value, BaseException):
        text = f"{type(value).__name__}: {text}" if text else type(value).__name__
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def error_code(code: object, reason: object) -> str | None:
    """The error code to store: the given one, or the `code` attribute of an exception."""
    if code is not None:
        if isinstance(code, bool) or not isinstance(code, str | int):
            raise InvalidInput(f"code must be a text or a whole number, not {type(code).__name__}: {shown(code)}")
        return check_name("code", str(code))
    own = getattr(reason, "code", None) if isinstance(reason, BaseException) else None
    if isinstance(own, bool) or not isinstance(own, str | int):
        return None
    try:
        return check_name("code", str(own))
    except InvalidInput:
        return None  # an invalid code of an exception must not fail the settlement
