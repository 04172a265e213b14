"""Reduce a history that violates a law: the events of the messages involved, without those that are not needed."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.chaos.checker import check
from penstock.chaos.checker.timeline import Violation
from penstock.chaos.history import Event

# Longer histories are not reduced further: that would take too long.
MAX_EVENTS = 400
# Events that concern every message.
SHARED = ("queue", "crash", "restore", "schedule", "drained", "followed", "seek", "replayed", "join", "leave",
          "left")  # fmt: skip
Call = tuple[str, int]


def smallest(events: list[Event], violation: Violation) -> list[Event]:
    """Few laws need receives that took none of these messages: keep them only if the violation disappears without."""
    messages = set(violation.messages)
    without = list(_concerning(events, messages, bystanders=False))
    if _shows(without, violation):
        return _reduced(without, violation)
    return list(_concerning(events, messages, bystanders=True)) if messages else []


def _reduced(kept: list[Event], violation: Violation) -> list[Event]:
    size = len(kept) // 2 if len(kept) <= MAX_EVENTS else 0
    while size:
        start = 0
        while start < len(kept):
            without = kept[:start] + kept[start + size :]
            if _shows(without, violation):
                kept = without
            else:
                start += size
        size //= 2
    return kept


def _shows(events: list[Event], violation: Violation) -> bool:
    try:
        return any(one.law == violation.law and set(one.messages) <= set(violation.messages) for one in check(events))
    except KeyError:
        return False  # a reply without its invocation


def _concerning(events: list[Event], messages: set[str], bystanders: bool) -> Iterator[Event]:
    calls = {_call(event) for event in events if _names(event, messages)}
    places: dict[Call, list[int]] = {}
    for event in events:
        if event["op"] in SHARED:
            yield event
        elif (event["op"] == "receive" and bystanders) or _call(event) in calls:
            yield _narrowed(event, messages, places)


def _names(event: Event, messages: set[str]) -> bool:
    several = [one["message"] for part in ("messages", "taken", "entries") for one in _parts(event, part)]
    named = {event.get("message"), event.get("end"), event.get("abort"), *several}
    return bool(named & messages)


def _narrowed(event: Event, messages: set[str], places: dict[Call, list[int]]) -> Event:
    """The event with these messages only."""
    narrowed = dict(event)
    for part in ("messages", "taken", "entries"):
        if part in event:
            found = [place for place, one in enumerate(_parts(event, part)) if one["message"] in messages]
            narrowed[part] = [event[part][place] for place in found]
            places[_call(event)] = found
    if event.get("ids"):
        narrowed["ids"] = [event["ids"][place] for place in places.get(_call(event), ())]
    return narrowed


def _parts(event: Event, part: str) -> list[Event]:
    parts: list[Event] = [one for one in event.get(part, ()) if isinstance(one, dict)]
    return parts


def _call(event: Event) -> Call:
    return event["process"], event["call"]
