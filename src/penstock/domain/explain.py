"""Why a message is not running, in one sentence, and the command that helps.

An engine reads the facts into a `Situation`; the answer is the same for every engine.
"""

from __future__ import annotations

from shlex import quote

import msgspec

from penstock.domain.errors import NotFound
from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.results import Explanation
from penstock.domain.timestamps import SECOND, to_time

Finding = tuple[str, str | None]


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine knows about a message in a group at the time `now`.

    `until_at` is the end of a delay, a backoff or a lease. `attempt` is None before the first receive. `batch` is set
    while the batch of the message has not started. `is_passed` means that a seek moved the cursor past the message,
    `is_blocked` that another message of its shard in an ordered queue is leased or waits for a retry.
    """

    now: int
    state: State = State.READY
    reason: str | None = None
    attempt: int | None = None
    until_at: int = 0
    consumer: str | None = None
    batch: str | None = None
    position: int | None = None
    has_group: bool = True
    is_stream: bool = False
    is_dead_letter: bool = False
    is_passed: bool = False
    is_blocked: bool = False
    is_paused: bool = False
    lag: int = 0
    consumers: int = 0


def explain(situation: Situation, queue: str, message_id: str, group: str) -> Explanation:
    state = situation.state
    if situation.is_stream:
        raise NotFound(f"group {group!r} is read as a stream: it has no state for single messages")
    if state in OUTCOMES:
        because = f"it ended {state}" + (f": {situation.reason}" if situation.reason else "")
        redrive = f"penstock redrive {quote(queue)} {message_id} --group {quote(group)}"
        finding: Finding = because, redrive if situation.is_dead_letter else None
    elif state is State.HELD:
        finding = _held(situation, queue)
    elif state is State.LEASED:
        finding = _leased(situation)
    else:
        finding = _ready(situation, queue, group)
    return Explanation(message_id, queue, group, state, *finding)


def _held(situation: Situation, queue: str) -> Finding:
    if situation.batch is not None:
        advice = f"penstock batch start {quote(queue)} {quote(situation.batch)}"
        return f"its batch {situation.batch!r} has not started", advice
    until = to_time(situation.until_at).isoformat(timespec="seconds")
    delay = f"until {until}, {_seconds_left(situation)} s from now"
    if situation.attempt is not None:
        return f"it waits for its next attempt {delay}{_last_error(situation)}", None
    if situation.until_at <= situation.now:
        return "it is due: the next receive or sweep makes it ready", None
    return f"it is delayed {delay}", None


def _leased(situation: Situation) -> Finding:
    consumer = repr(situation.consumer)
    if situation.until_at <= situation.now:
        return f"the lease of {consumer} has ended: the next receive or sweep reclaims it", None
    lease = f"with a lease for another {_seconds_left(situation)} s"
    return f"consumer {consumer} has it (attempt {situation.attempt}), {lease}", None


def _ready(situation: Situation, queue: str, group: str) -> Finding:
    receive = f"penstock receive {quote(queue)} --group {quote(group)}"
    if not situation.has_group:
        return f"group {group!r} has never received from this queue", receive
    if situation.is_passed:
        before = (situation.position or 1) - 1
        advice = f"penstock seek {quote(queue)} {quote(group)} {before}"
        return "the group's cursor was moved past it by a seek", advice
    if situation.is_paused:
        return "the queue is paused", f"penstock resume {quote(queue)}"
    because = "it is ready and has not been received"
    if situation.attempt is not None:
        because = f"it is ready for attempt {situation.attempt + 1}{_last_error(situation)}"
    if situation.is_blocked:
        return f"{because}; in its shard another message is in flight or waits for a retry", None
    because = f"{because}; {situation.lag} unread messages wait in the group"
    if situation.consumers == 0:
        return f"{because}, and no consumer is registered", receive
    return because, None


def _last_error(situation: Situation) -> str:
    return f"; its last error was: {situation.reason}" if situation.reason else ""


def _seconds_left(situation: Situation) -> str:
    return f"{max(0, situation.until_at - situation.now) / SECOND:.0f}"
