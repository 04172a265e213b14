"""The laws, judged on what the processes wrote down (the history) and on what the store says afterwards (the dump).

Times are the engine's clock. Each check yields `Violation`s named after the invariant it breaks:

    I01 a send that returned is never lost            I15 attempts have no gaps
    I02 nothing comes from nowhere                    I16 poison makes exactly one dead letter, in time
    I04 one id is one message                         I18 counts conserve
    I06 no two live leases                            I19 one outcome each
    I07 tokens grow                                   I20 audit trails are legal and complete
    I08 a stale token changes nothing                 I29 a batch ends exactly once, after its last member
    I09 at most one final settlement                  I30 a schedule sends each tick exactly once
    I12 at_most_once is never redelivered without a nak
    I13 never late, I14 never early                   I22 payloads arrive as they were sent
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.domain.lifecycle import LIVE, OUTCOMES, Event, State, is_legal
from tests.faults.history import Step

FINAL = {str(state) for state in OUTCOMES}
COUNTED = ("held", "available", "redo", "in_progress")


class Violation(NamedTuple):
    invariant: str
    text: str


class Entry(NamedTuple):
    """One audit entry; its group is None for what concerns all groups."""

    at: int
    event: str
    state: str
    group: str | None
    attempt: int
    by: str = ""


@dataclass
class Fate:
    """All that the store says of one message after the run."""

    payload: str
    trail: list[Entry]
    letters: int = 0


@dataclass
class Dump:
    fates: dict[str, Fate]
    stats: dict[str, dict[str, Any]]
    max_retries: int | None = 7
    groups: tuple[str, ...] = ("default",)
    ticks_expected: int | None = None
    batches: dict[str, tuple[list[str], str]] = field(default_factory=dict)


def check(history: list[Step], dump: Dump) -> list[Violation]:
    return [violation for rule in RULES for violation in rule(history, dump)]


# -- sends -------------------------------------------------------------------------------------------------------------


def nothing_lost(history: list[Step], dump: Dump) -> Iterator[Violation]:
    for step in _answers(history, "send"):
        for message_id in step["ids"]:
            if message_id not in dump.fates:
                yield Violation("I01", f"{message_id} was sent by {step['process']} ({step['n']}) and is gone")


def nothing_from_nowhere(history: list[Step], dump: Dump) -> Iterator[Violation]:
    payloads = {payload for step in history if step["op"] == "send" for payload in step.get("payloads", ())}
    seen = {(fate.payload, message_id) for message_id, fate in dump.fates.items()}
    seen |= {(step["payload"], step["id"]) for step in history if step["op"] == "delivery"}
    for payload, message_id in seen:
        if payload not in payloads:
            yield Violation("I02", f"{message_id} with payload {payload!r} was never sent")


def sends_are_whole(history: list[Step], dump: Dump) -> Iterator[Violation]:
    """All messages of one call are there, or none."""
    present = Counter(fate.payload for fate in dump.fates.values())
    for step in history:
        if step["op"] == "send" and step["type"] == "invoke":
            there = sum(present[payload] > 0 for payload in step["payloads"])
            if there not in (0, len(step["payloads"])):
                yield Violation("I03", f"{there} of {len(step['payloads'])} messages of one send are there: {step}")


def one_id_one_message(history: list[Step], dump: Dump) -> Iterator[Violation]:
    present = Counter(fate.payload for fate in dump.fates.values())
    for step in history:
        if step["op"] == "send" and step["type"] == "invoke":
            for payload in step["payloads"]:
                if present[payload] > 1:
                    yield Violation("I04", f"{payload!r} was sent once and is there {present[payload]} times")


# -- leases ------------------------------------------------------------------------------------------------------------


class Holding(NamedTuple):
    """The time in which a process certainly held a lease: from knowing it to giving it up or to its end."""

    start: int
    end: int
    token: int
    process: str


def holdings(history: list[Step]) -> dict[tuple[str, str], list[Holding]]:
    ends: dict[tuple[str, int], int] = {}
    found: dict[tuple[str, str], list[Holding]] = defaultdict(list)
    for step in history:
        if step["op"] == "settle" and step["type"] == "invoke":
            ends.setdefault((step["id"], step["token"]), step["t"])
        if step["op"] == "deregister" and step["type"] == "invoke":
            for message_id, token in step["leases"]:
                ends.setdefault((message_id, token), step["t"])
    for step in history:
        if step["op"] == "delivery":
            end = min(step["lease_ends_at"], ends.get((step["id"], step["token"]), step["lease_ends_at"]))
            if end > step["t"]:
                holding = Holding(step["t"], end, step["token"], step["process"])
                found[step["group"], step["id"]].append(holding)
    return found


def one_live_lease(history: list[Step], dump: Dump) -> Iterator[Violation]:
    for (group, message_id), held in holdings(history).items():
        held.sort()
        for first, second in itertools.pairwise(held):
            if second.start < first.end:
                yield Violation("I06", f"{message_id} in {group} was held twice: {first} and {second}")


def tokens_grow(history: list[Step], dump: Dump) -> Iterator[Violation]:
    """A later receive has a greater token. It is known to be later if the calls did not overlap. So it is if both were
    settled: who has settled had the message to himself from when he was handed it until then."""
    deliveries: dict[tuple[str, str], list[Step]] = defaultdict(list)
    for step in history:
        if step["op"] == "delivery":
            deliveries[step["group"], step["id"]].append(step)
    settled = {(step["group"], step["id"], step["token"]) for step in _answers(history, "settle")}
    for (group, message_id), steps in deliveries.items():
        own = [(group, message_id, step["token"]) in settled for step in steps]
        for earlier, was_settled in zip(steps, own, strict=True):
            for later, is_settled in zip(steps, own, strict=True):
                is_later = was_settled and is_settled and later["t"] > earlier["t"]
                if (is_later or later["asked_at"] > earlier["t"]) and later["token"] <= earlier["token"]:
                    yield Violation("I07", f"{message_id} in {group}: token {later['token']} after {earlier['token']}")


def stale_tokens_fail(history: list[Step], dump: Dump) -> Iterator[Violation]:
    newest: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
    for step in history:
        if step["op"] == "delivery":
            newest[step["group"], step["id"]].append((step["t"], step["token"]))
    asked = {(step["process"], step["call"]): step["t"] for step in _calls(history, "settle", "extend")}
    for step in _answers(history, "settle", "extend"):
        at = asked[step["process"], step["call"]]
        issued = [token for t, token in newest[step["group"], step["id"]] if t < at]
        if step["token"] < max(issued, default=-1) and not step.get("repeat"):
            yield Violation("I08", f"{step['id']}: token {step['token']} settled after {max(issued)} was given out")
        if at >= step["lease_ends_at"] and not step.get("repeat"):
            yield Violation("I08", f"{step['id']}: settled {at - step['lease_ends_at']} µs after the lease had ended")


def one_final_settlement(history: list[Step], dump: Dump) -> Iterator[Violation]:
    final: dict[tuple[str, str], set[tuple[int, str]]] = defaultdict(set)
    for step in _answers(history, "settle"):
        if step["state"] in FINAL:
            final[step["group"], step["id"]].add((step["token"], step["verb"]))
    for (group, message_id), settles in final.items():
        if len(settles) > 1:
            yield Violation("I09", f"{message_id} in {group} was settled for good more than once: {sorted(settles)}")


# -- trails ------------------------------------------------------------------------------------------------------------


def trails_are_legal(history: list[Step], dump: Dump) -> Iterator[Violation]:
    for message_id, group, trail in _trails(dump):
        state: State | None = None
        for entry in trail:
            if not is_legal(state, Event(entry.event), State(entry.state)):
                yield Violation("I20", f"{message_id} in {group}: {state} --{entry.event}--> {entry.state}")
            state = State(entry.state)
        if [entry.at for entry in trail] != sorted(entry.at for entry in trail):
            yield Violation("I20", f"{message_id} in {group}: the audit trail goes back in time")


def trails_are_complete(history: list[Step], dump: Dump) -> Iterator[Violation]:
    """Every delivery and every answered settlement is in the trail; nothing is live after the drain."""
    for message_id, group, trail in _trails(dump):
        if not trail or State(trail[-1].state) in LIVE:
            yield Violation("I20", f"{message_id} in {group} is not finished: {trail[-1:]}")
    for step in history:
        fate = dump.fates.get(step.get("id", ""))
        if fate is None:
            continue
        entries = [entry for entry in fate.trail if entry.group == step["group"]]
        if step["op"] == "delivery" and not _has(entries, "receive", attempt=step["attempt"]):
            yield Violation("I20", f"{step['id']}: delivery {step['attempt']} is not in the audit trail")
        if step["op"] == "settle" and step["type"] == "ok" and not _has(entries, step["verb"], state=step["state"]):
            yield Violation("I20", f"{step['id']}: {step['verb']} is not in the audit trail")


def _has(entries: list[Entry], event: str, attempt: int | None = None, state: str | None = None) -> bool:
    return any(
        entry.event == event and attempt in (None, entry.attempt) and state in (None, entry.state) for entry in entries
    )


def one_outcome(history: list[Step], dump: Dump) -> Iterator[Violation]:
    """Without redrives a message ends once; a dead letter stands for every end but success."""
    for message_id, group, trail in _trails(dump):
        ends = [entry.state for entry in trail if entry.state in FINAL]
        if len(ends) > 1:
            yield Violation("I19", f"{message_id} in {group} ended {len(ends)} times: {ends}")
    for message_id, fate in dump.fates.items():
        ends = [entry.state for entry in fate.trail if entry.state in FINAL and entry.group in (None, dump.groups[0])]
        letters = sum(end != "succeeded" for end in ends[-1:])
        if fate.letters != letters:
            yield Violation("I19", f"{message_id} ended {ends} and has {fate.letters} dead letters")


def attempts_have_no_gaps(history: list[Step], dump: Dump) -> Iterator[Violation]:
    for message_id, group, trail in _trails(dump):
        last = 0
        for entry in trail:
            if entry.event == "receive":
                if entry.attempt != last + 1:
                    yield Violation("I15", f"{message_id} in {group}: attempt {entry.attempt} after {last}")
                last = entry.attempt
            elif entry.event in ("reschedule", "redrive"):
                last = 0
            elif entry.event == "release":
                last -= 1


def retries_are_bounded(history: list[Step], dump: Dump) -> Iterator[Violation]:
    for message_id, group, trail in _trails(dump):
        most = max((entry.attempt for entry in trail if entry.event == "receive"), default=0)
        if dump.max_retries is not None and most > dump.max_retries + 1:
            yield Violation("I16", f"{message_id} in {group} was handed out {most} times")
        poison = group == dump.groups[0] and dump.fates[message_id].payload.startswith("poison")
        if poison and trail and trail[-1].state != "failed":
            yield Violation("I16", f"poison {message_id} in {group} ended {trail[-1].state}")


def at_most_once_holds(history: list[Step], dump: Dump) -> Iterator[Violation]:
    for message_id, group, trail in _trails(dump):
        if not dump.fates[message_id].payload.startswith("once"):
            continue
        for before, entry in itertools.pairwise(trail):
            if (
                before.state == "leased"
                and entry.state in ("ready", "held")
                and entry.event not in ("nak", "reschedule")
            ):
                yield Violation("I12", f"{message_id} in {group} came back by {entry.event}, without a nak")


# -- times, payloads, counts -------------------------------------------------------------------------------------------


def times_are_kept(history: list[Step], dump: Dump) -> Iterator[Violation]:
    for step in history:
        if step["op"] == "delivery":
            if step["available_at"] is not None and step["t"] < step["available_at"]:
                yield Violation("I14", f"{step['id']} was handed out before its available_at")
            if step["expires_at"] is not None and step["asked_at"] >= step["expires_at"]:
                yield Violation("I13", f"{step['id']} was asked for after its expires_at, and handed out")


def payloads_are_whole(history: list[Step], dump: Dump) -> Iterator[Violation]:
    sent = {
        message_id: payload
        for step in _answers(history, "send")
        for message_id, payload in zip(step["ids"], step["payloads"], strict=True)
    }
    for step in history:
        if step["op"] == "delivery" and sent.get(step["id"], step["payload"]) != step["payload"]:
            yield Violation("I22", f"{step['id']} was sent as {sent[step['id']]!r}, delivered as {step['payload']!r}")


def counts_conserve(history: list[Step], dump: Dump) -> Iterator[Violation]:
    """At the end exactly; on the way between what had surely been sent and what may have been."""
    for group, stats in dump.stats.items():
        total = sum(stats[name] for name in COUNTED) + sum(stats["outcomes"].values())
        if total != len(dump.fates):
            yield Violation("I18", f"{group} counts {total} of {len(dump.fates)} messages: {stats}")
    for step in _answers(history, "stats"):
        total = sum(step["stats"][name] for name in COUNTED) + sum(step["stats"]["outcomes"].values())
        surely = sum(len(one["ids"]) for one in _answers(history, "send") if one["t"] < step["asked_at"])
        maybe = sum(len(one["payloads"]) for one in _calls(history, "send") if one["t"] < step["t"])
        if not surely <= total <= maybe:
            yield Violation("I18", f"{total} counted while {surely} to {maybe} were sent: {step['stats']}")


def batches_end_once(history: list[Step], dump: Dump) -> Iterator[Violation]:
    """`dump.batches`: name to (payloads of its members, payload of its end message)."""
    for name, (members, end) in dump.batches.items():
        ends = [fate for fate in dump.fates.values() if fate.payload == end]
        if len(ends) != 1:
            yield Violation("I29", f"batch {name} has {len(ends)} end messages")
        trails = [_trail_in(fate, dump.groups[0]) for fate in dump.fates.values() if fate.payload in members]
        finished = [trail[-1].at for trail in trails if trail]
        for fate in ends:
            if finished and fate.trail[0].at < max(finished):
                yield Violation("I29", f"batch {name}: its end message came before its last member had finished")


def ticks_are_sent_once(history: list[Step], dump: Dump) -> Iterator[Violation]:
    if dump.ticks_expected is not None:
        sent = sum(fate.payload == "tick" for fate in dump.fates.values())
        if sent != dump.ticks_expected:
            yield Violation("I30", f"{dump.ticks_expected} ticks passed, {sent} messages were sent for them")


RULES: tuple[Callable[[list[Step], Dump], Iterator[Violation]], ...] = (
    nothing_lost,
    nothing_from_nowhere,
    sends_are_whole,
    one_id_one_message,
    one_live_lease,
    tokens_grow,
    stale_tokens_fail,
    one_final_settlement,
    trails_are_legal,
    trails_are_complete,
    one_outcome,
    attempts_have_no_gaps,
    retries_are_bounded,
    at_most_once_holds,
    times_are_kept,
    payloads_are_whole,
    counts_conserve,
    batches_end_once,
    ticks_are_sent_once,
)


def _answers(history: list[Step], *ops: str) -> Iterator[Step]:
    return (step for step in history if step["op"] in ops and step["type"] == "ok")


def _calls(history: list[Step], *ops: str) -> Iterator[Step]:
    return (step for step in history if step["op"] in ops and step["type"] == "invoke")


def _trails(dump: Dump) -> Iterator[tuple[str, str, list[Entry]]]:
    for message_id, fate in dump.fates.items():
        for group in dump.groups:
            yield message_id, group, _trail_in(fate, group)


def _trail_in(fate: Fate, group: str) -> list[Entry]:
    return [entry for entry in fate.trail if entry.group in (None, group)]
