"""Why a message is not running: one answer in plain words, and what to do about it."""

from __future__ import annotations

from shlex import quote
from typing import Any

from penstock.domain.errors import NotFound
from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.observations import Explanation
from penstock.domain.times import SECOND, to_time

Finding = tuple[State, str, str | None]
Known = dict[str, Any]


def explain(known: Known, now: int, queue: str, message_id: str, group: str) -> Explanation:
    return Explanation(message_id, queue, group, *_finding(known, now, queue, message_id, group))


def _finding(known: Known, now: int, queue: str, message_id: str, group: str) -> Finding:
    if known.get("is_held"):
        return _held(known, now, queue)
    if known.get("is_stream"):
        raise NotFound(f"group {group!r} is read as a stream: it has no state for single messages")
    if "seq" not in known:
        advice = f"penstock receive {quote(queue)} --group {quote(group)}"
        return State.READY, f"group {group!r} has never received from this queue", advice
    if known["state"] in OUTCOMES:
        return _ended(known, queue, message_id, group)
    if known["tracked"] is not None:
        return _tracked(known, known["tracked"], now, queue, group)
    if known["lease"] is not None:
        return _in_flight(known["lease"]["consumer"], known["lease"]["ends_at"], 1, now)
    if known["is_read"]:
        advice = f"penstock seek {quote(queue)} {quote(group)} {known['seq'] - 1}"
        return State.READY, "the group's cursor was moved past it by a seek", advice
    return _ready(known, queue, group, "it is ready and has not been received")


def _held(known: Known, now: int, queue: str) -> Finding:
    batch, available_at = known["batch"], known["available_at"]
    if known["waiting"]:
        return State.HELD, f"its batch {batch!r} has not started", f"penstock batch start {quote(queue)} {quote(batch)}"
    if available_at <= now:
        return State.HELD, "it is due: the next receive or sweep makes it ready", None
    return State.HELD, f"it is delayed until {_at(available_at)}, {_left(available_at, now)} from now", None


def _ended(known: Known, queue: str, message_id: str, group: str) -> Finding:
    state = State(known["state"])
    because = f"it ended {state}" + (f": {known['reason']}" if known["reason"] else "")
    advice = f"penstock redrive {quote(queue)} {message_id} --group {quote(group)}" if known["is_dead"] else None
    return state, because, advice


def _tracked(known: Known, tracked: Known, now: int, queue: str, group: str) -> Finding:
    last_error = f"; its last error was: {tracked['reason']}" if tracked["reason"] else ""
    if tracked["state"] == State.LEASED:
        return _in_flight(tracked["consumer"], tracked["until_at"], tracked["attempt"], now)
    if tracked["state"] == State.HELD:
        until = tracked["until_at"]
        because = f"it waits for its next attempt until {_at(until)}, {_left(until, now)} from now{last_error}"
        return State.HELD, because, None
    return _ready(known, queue, group, f"it is ready for attempt {tracked['attempt'] + 1}{last_error}")


def _in_flight(consumer: str, ends_at: int, attempt: int, now: int) -> Finding:
    if ends_at <= now:
        return State.LEASED, f"the lease of {consumer!r} has ended: the next receive or sweep reclaims it", None
    left = _left(ends_at, now)
    return State.LEASED, f"consumer {consumer!r} has it (attempt {attempt}), with a lease for another {left}", None


def _ready(known: Known, queue: str, group: str, because: str) -> Finding:
    if known["paused"]:
        return State.READY, "the queue is paused", f"penstock resume {quote(queue)}"
    if known["is_blocked"]:
        return State.READY, f"{because}; in its shard another message is in flight or waits for a retry", None
    ahead = f"{known['lag']} unread messages wait in the group"
    if known["consumers"] == 0:
        advice = f"penstock receive {quote(queue)} --group {quote(group)}"
        return State.READY, f"{because}; {ahead}, and no consumer is registered", advice
    return State.READY, f"{because}; {ahead}", None


def _at(at: int) -> str:
    return to_time(at).isoformat(timespec="seconds")


def _left(at: int, now: int) -> str:
    return f"{max(0, at - now) / SECOND:.0f} s"
