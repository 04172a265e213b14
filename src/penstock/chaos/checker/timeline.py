"""The events of a run by message: sends, deliveries, settlements, and what the drain found."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.chaos.history import Event

SECOND = 1_000_000
# Clocks of two processes of one machine may differ by this much.
SLACK = 10_000
# A worker extends its leases while it runs, so their ends are unknown.
HOUR = 3600 * SECOND
AGAIN = ("nak", "reschedule")
FOREVER = 2**62
# Operators act on this group, unless they move another one.
PRIMARY = "default"
FINAL = {"succeeded", "rejected", "failed", "lease_expired", "expired", "cancelled"}
Place = tuple[str, str, str]  # queue, group, message


class Violation(NamedTuple):
    """A violated law, and the messages that show it."""

    law: str
    text: str
    messages: tuple[str, ...]


@dataclass
class Rules:
    """What was declared for a queue."""

    name: str
    groups: tuple[str, ...] = ("default",)
    primary: str | None = "default"
    max_retries: int | None = None
    at_most_once: bool = False
    ordered: bool = False
    backoff: int = 0
    has_workers: bool = False


@dataclass
class SentMessage:
    """One message of a send; `state` is ok, fail, unknown, or void when a restore may have undone it. `conditional`:
    sent by the store itself, if at all."""

    message: str
    queue: str
    call: tuple[str, int]
    asked: int
    state: str = "unknown"
    answered: int | None = None
    id: str | None = None
    delay: int = 0
    ttl: int | None = None
    priority: int = 0
    key: str | None = None
    poison: bool = False
    batch: str | None = None
    conditional: bool = False
    content: str | None = None
    address: str | None = None
    refusal: str | None = None

    @property
    def is_ok(self) -> bool:
        return self.state == "ok" and not self.conditional


@dataclass
class SettleCall:
    """A restore has surely undone one with `is_undone`; when it only may have, the state is unknown."""

    verb: str
    asked: int
    state: str = "unknown"
    answered: int | None = None
    outcome: str | None = None
    delay: int | None = None
    is_undone: bool = False


@dataclass
class Delivered:
    """A message handed to a client: asked for, known at, and surely held until (`ends`), surely not after (`over`). A
    restore of the store may have undone a void one, and surely has when `is_undone` is set."""

    place: Place
    process: str
    id: str
    token: int
    attempt: int
    asked: int
    at: int
    ends: int
    over: int
    receive: tuple[str, int]
    is_void: bool = False
    is_undone: bool = False
    content: str | None = None
    settlings: list[SettleCall] = field(default_factory=list)

    @property
    def released_at(self) -> int:
        """The time from which it may no longer be held: its client tried to settle it, or the lease ended."""
        return min([self.ends, *(one.asked for one in self.settlings)])

    def settled(self, *verbs: str, surely: bool = False) -> bool:
        kinds = ("ok",) if surely else ("ok", "unknown")
        return any(one.verb in verbs and one.state in kinds for one in self.settlings)


class Restore(NamedTuple):
    """The store was copied at some moment between `begun` and `copied`, and is as it was then since `done`."""

    begun: int
    copied: int
    done: int


class Letter(NamedTuple):
    """A dead letter, looked up at a time."""

    outcome: str
    attempts: int
    asked: int
    at: int


@dataclass
class Intervention:
    """An operator's redrive or remove of these messages, or the seek of a group."""

    op: str
    queue: str
    group: str
    messages: tuple[str, ...]
    asked: int
    state: str = "unknown"
    answered: int | None = None


@dataclass
class Receive:
    """A call of receive: until when it may have taken messages, and what it is known to have taken."""

    queue: str
    group: str
    asked: int
    answered: int | None = None
    taken: list[Delivered] = field(default_factory=list)


class Timeline:
    def __init__(self, events: Iterable[Event]) -> None:
        self.rules: dict[str, Rules] = {}
        self.sent: dict[str, SentMessage] = {}
        self.delivered: dict[Place, list[Delivered]] = defaultdict(list)
        self.receives: dict[tuple[str, int], Receive] = {}
        self.letters: dict[Place, list[Letter]] = defaultdict(list)
        events = list(events)
        self.restores = [
            Restore(event["since"], event["copied"], event["t"]) for event in events if event["op"] == "restore"
        ]
        crashes = (event["t"] for event in events if event["op"] == "crash")
        self.crashes: list[int] = [*crashes, *(time for one in self.restores for time in (one.begun, one.done))]
        self.interventions: list[Intervention] = []
        self._acts: dict[tuple[str, str, str | None], list[Intervention]] = defaultdict(list)
        self.others: dict[str, list[Event]] = defaultdict(list)
        self._held: dict[tuple[Place, int], Delivered] = {}
        self._calls: dict[tuple[str, int], Any] = {}
        for event in events:
            read = getattr(self, f"_read_{event['op']}", None)
            if read is None:
                self.others[event["op"]].append(event)
            else:
                read(event)
        for several in self.delivered.values():
            several.sort(key=lambda one: one.at)
        self._release_followers()
        self._release_leavers(events)
        self._release_survivors(events)
        self._release_removed()

    # -- questions -------------------------------------------------------------------------------------------------

    def rule(self, queue: str) -> Rules:
        return self.rules.get(queue) or Rules(queue)

    def of(self, queue: str, message: str) -> Iterator[tuple[str, list[Delivered]]]:
        for group in self.rule(queue).groups:
            yield group, self.delivered.get((queue, group, message), [])

    def deliveries(self) -> Iterator[Delivered]:
        for several in self.delivered.values():
            yield from several

    def was_seen(self, sent: SentMessage, surely: bool = False) -> bool:
        """Whether it happened and no restore undid it; with `surely`, no restore may have undone it."""
        several = (one for _, several in self.of(sent.queue, sent.message) for one in several)
        if any(not (one.is_void if surely else one.is_undone) for one in several):
            return True
        groups = self.rule(sent.queue).groups
        return any(self.letters.get((sent.queue, group, sent.message)) for group in groups)

    def possible_ends(self, place: Place) -> Iterator[SettleCall]:
        """Acks and rejects that may have taken effect, and that no restore surely undid."""
        for delivered in self.delivered.get(place, ()):
            for one in delivered.settlings:
                if one.verb in ("ack", "reject") and one.state != "fail" and not one.is_undone:
                    yield one

    def crashed_between(self, start: int, end: int) -> bool:
        """Whether the server crashed between two times: it loses what was not on its disk, and leases of at_least_once
        messages need not be."""
        return any(start <= crash <= end for crash in self.crashes)

    def is_void(self, asked: int, answered: int) -> bool:
        """Whether a restore may have undone the call: it returned after the copy was begun, and was made before the
        restore was done."""
        return any(asked < one.done and answered > one.begun for one in self.restores)

    def is_undone(self, asked: int, answered: int) -> bool:
        """Whether a restore surely undid the call. A call concurrent with the copy may be in it, and one that waited
        for the server may have reached the restored store."""
        return any(asked > one.copied and answered < one.done for one in self.restores)

    def revivals(self, place: Place, after: int = 0, before: int = FOREVER) -> list[Intervention]:
        """Redrives and seeks between two times that may have made an ended message ready again."""
        several = [*self._acts[place], *self._acts[(*place[:2], None)]]
        return [one for one in several if _may_act(one) and one.asked < before and (one.answered or FOREVER) > after]

    def removal(self, queue: str, message: str) -> Intervention | None:
        """The remove of the message that may have happened, or None."""
        several = self._acts[queue, PRIMARY, message]
        return next((one for one in several if one.op == "remove" and one.state != "fail"), None)

    def is_sought(self, queue: str, group: str) -> bool:
        return bool(self._acts[queue, group, None])

    # -- reading events --------------------------------------------------------------------------------------------

    def _read_queue(self, event: Event) -> None:
        self.rules[event["queue"]] = Rules(
            event["queue"],
            tuple(event.get("groups", ("default",))),
            event.get("primary", "default"),
            event.get("max_retries"),
            event.get("at_most_once", False),
            event.get("ordered", False),
            _micro(event.get("backoff")) or 0,
            event.get("has_workers", False),
        )

    def _read_send(self, event: Event) -> None:
        call = (event["process"], event["call"])
        if event["type"] == "invoke":
            several = [_sent(one, event, call) for one in event["messages"]]
            self._calls[call] = several
            for one in several:
                self.sent[one.message] = one
            return
        ids = event.get("ids") or [None] * len(self._calls.get(call, ()))
        for one, message_id in zip(self._calls.get(call, ()), ids, strict=False):
            one.state, one.answered, one.id = event["type"], event["t"], message_id
            one.refusal = event.get("refusal")
            if one.state != "fail" and self.is_void(one.asked, event["t"]):
                one.state, one.id = "void", None

    def _read_receive(self, event: Event) -> None:
        call = (event["process"], event["call"])
        if event["type"] == "invoke":
            self.receives[call] = Receive(event["queue"], event["group"], event["t"])
            self._calls[call] = event
            return
        receive = self.receives.get(call)
        if receive is None or event["type"] == "unknown":
            return
        receive.answered = event["t"]
        lease = _micro(self._calls[call]["lease"]) or 0
        for one in event.get("taken", ()):
            ends, over = receive.asked + lease, event["t"] + lease
            receive.taken.append(self._hand(one, event, receive.asked, ends, over, receive.queue, receive.group))

    def _read_handle(self, event: Event) -> None:
        """A worker's handler was called: it cannot know when the worker asked, only how long the lease still lasts, and
        so when it began. A crash since then may have forgotten it."""
        ends = event["t"] + event["left"]
        asked = min(event["t"], ends - (_micro(event.get("lease")) or event["left"]))
        self._hand(event, event, asked, ends, event["t"] + HOUR, event["queue"], event["group"])

    def _hand(self, one: Event, event: Event, asked: int, ends: int, over: int, queue: str, group: str) -> Delivered:
        place = (queue, group, one["message"])
        sent = self.sent.get(one["message"])
        if sent is not None and sent.ttl is not None:
            ends = min(ends, sent.asked + sent.ttl)
        delivered = Delivered(
            place, event["process"], one["id"], one["token"], one["attempt"], asked, event["t"],
            self._until_crash(queue, asked, ends), over, (event["process"], event["call"]),
            content=one.get("content"),
        )  # fmt: skip
        if self.is_void(asked, event["t"]):
            delivered.is_void, delivered.ends, delivered.over = True, asked, FOREVER
            delivered.is_undone = self.is_undone(asked, event["t"])
        self.delivered[place].append(delivered)
        self._held[place, one["token"]] = delivered
        return delivered

    def _until_crash(self, queue: str, asked: int, ends: int) -> int:
        if self.rule(queue).at_most_once:
            return ends
        return min([ends, *(crash for crash in self.crashes if crash >= asked)])

    def _release_followers(self) -> None:
        """In an ordered queue a retried message releases the later messages of its lease."""
        leases: dict[tuple[str, str, int], list[Delivered]] = defaultdict(list)
        for one in self.deliveries():
            if self.rule(one.place[0]).ordered:
                leases[(*one.place[:2], one.token)].append(one)
        for several in leases.values():
            tried = [settling.asked for one in several for settling in one.settlings if settling.verb in AGAIN]
            for one in several if tried else ():
                one.ends = min(one.ends, min(tried))

    def _release_leavers(self, events: list[Event]) -> None:
        """A stopping worker releases its messages, also those whose handler still runs after the grace period, or was
        started while the worker waited for its last receive."""
        stops: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for event in events:
            if event["op"] == "leave":
                stops[event["process"]].append((event["t"], FOREVER))
            elif event["op"] == "left" and stops[event["process"]]:  # a reduced history may lack the beginning
                stops[event["process"]][-1] = (stops[event["process"]][-1][0], event["t"])
        for one in self.deliveries() if stops else ():
            one.ends = min([one.ends, *(leave for leave, left in stops.get(one.process, ()) if one.at < left)])

    def _release_survivors(self, events: list[Event]) -> None:
        """A restore also undoes heartbeats. A worker that survives it may count as dead, and is then removed with its
        leases, before its next heartbeat. The time of that is unknown."""
        joined = {event["process"]: event["t"] for event in reversed(events) if event["op"] == "join"}
        for restore in self.restores:
            for one in self.deliveries():
                if joined.get(one.process, FOREVER) < restore.done < one.at:
                    one.ends = min(one.ends, one.asked)

    def _read_settle(self, event: Event) -> None:
        call = (event["process"], event["call"])
        if event["type"] == "invoke":
            settling = SettleCall(event["verb"], event["t"], delay=_micro(event.get("delay")))
            held = self._held.get(((event["queue"], event["group"], event["message"]), event["token"]))
            if held is not None:
                held.settlings.append(settling)
            self._calls[call] = settling
        elif call in self._calls:
            one = self._calls[call]
            one.state, one.answered, one.outcome = event["type"], event["t"], event.get("state")
            if one.state == "ok" and self.is_void(one.asked, event["t"]):
                one.state, one.is_undone = "unknown", self.is_undone(one.asked, event["t"])

    def _read_extend(self, event: Event) -> None:
        call = (event["process"], event["call"])
        if event["type"] == "invoke":
            self._calls[call] = event
        elif call in self._calls and event["type"] in ("ok", "unknown"):
            asked = self._calls[call]
            held = self._held.get(((asked["queue"], asked["group"], asked["message"]), asked["token"]))
            if held is not None:
                length = _micro(asked["seconds"]) or 0
                held.over = max(held.over, event["t"] + length)
                if event["type"] == "ok" and not self.is_void(asked["t"], event["t"]):
                    ends = self._until_crash(asked["queue"], asked["t"], asked["t"] + length)
                    held.ends = max(held.ends, ends)

    def _read_dead(self, event: Event) -> None:
        place = (event["queue"], event["group"], event["message"])
        letter = Letter(event["outcome"], event["attempts"], asked_at(event), event["t"])
        if not self.is_void(letter.asked, letter.at):
            self.letters[place].append(letter)

    def _read_intervention(self, event: Event) -> None:
        call = (event["process"], event["call"])
        if event["type"] == "invoke":
            names = tuple(one["message"] for one in event.get("messages", ()))
            one = Intervention(event["op"], event["queue"], event["group"], names, event["t"])
            self._calls[call] = one
            self.interventions.append(one)
            for name in names or (None,):
                self._acts[one.queue, one.group, name].append(one)
        elif event["type"] != "unknown" and not self.is_void(self._calls[call].asked, event["t"]):
            self._calls[call].state, self._calls[call].answered = event["type"], event["t"]

    _read_redrive = _read_seek = _read_remove = _read_intervention

    def _release_removed(self) -> None:
        for removal in (one for one in self.interventions if one.op == "remove"):
            for message in removal.messages:
                for _, several in self.of(removal.queue, message):
                    for delivered in several:
                        delivered.ends = min(delivered.ends, removal.asked)


def asked_at(event: Event) -> int:
    """When something was looked up: at the latest when it was noted."""
    asked: int = event["asked"] if "asked" in event else event["t"]
    return asked


def _may_act(one: Intervention) -> bool:
    return one.op != "remove" and one.state != "fail"


def _sent(one: Event, event: Event, call: tuple[str, int]) -> SentMessage:
    return SentMessage(
        one["message"],
        event["queue"],
        call,
        event["t"],
        delay=_micro(one.get("delay")) or 0,
        ttl=_micro(one.get("ttl")),
        priority=one.get("priority", 0),
        key=one.get("key"),
        poison=one.get("poison", False),
        batch=one.get("batch"),
        conditional=one.get("conditional", False),
        content=one.get("content"),
        address=one.get("address"),
    )


def _micro(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * SECOND)
