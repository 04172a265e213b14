"""Every engine follows the lifecycle table: in every state each event leads where the table says, and other events
change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

import pytest

from penstock import NotFound, PenstockError, Queue, State, Store
from penstock.domain.lifecycle import TABLE, Event
from penstock.domain.settlement import Settle
from tests.conformance.clock import Clock

LEASE = 31
DELAY = 600
LATE = 5_000
Edge = tuple[State | None, Event, State]


class Subject(NamedTuple):
    """A message under test, with the token of its last delivery."""

    store: Store
    queue: Queue
    clock: Clock
    id: str
    token: int

    @property
    def trail(self) -> list[tuple[Event, State]]:
        """The trail in the group; empty when the message was removed."""
        try:
            entries = self.queue.audit(self.id)
        except NotFound:
            return []
        return [(entry.event, entry.state) for entry in entries if entry.group in (None, "default")]

    @property
    def state(self) -> State:
        return self.trail[-1][1]

    def settle(self, event: Event, delay_seconds: float | None = None) -> None:
        position = self.queue.find(self.id).position or 0
        settle = Settle(event, self.id, position, self.token, "said so", delay_seconds)
        self.queue.engine.settle(self.queue.name, "default", [settle])

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds=seconds)
        self.store.sweep()


EVENTS: dict[Event, Callable[[Subject], object]] = {
    Event.DUE: lambda one: one.wait(DELAY + 1),
    Event.BATCH_START: lambda one: one.queue.batch("nightly").start(),
    Event.RECEIVE: lambda one: one.queue.receive(lease_seconds=LEASE),
    Event.ACK: lambda one: one.settle(Event.ACK),
    Event.NAK: lambda one: one.settle(Event.NAK, DELAY),
    Event.REJECT: lambda one: one.settle(Event.REJECT),
    Event.RESCHEDULE: lambda one: one.settle(Event.RESCHEDULE, DELAY),
    Event.LEASE_END: lambda one: one.wait(LEASE + 1),
    Event.RELEASE: lambda one: one.settle(Event.RELEASE),
    Event.DEADLINE: lambda one: one.wait(LATE),
    Event.EXPIRE: lambda one: one.wait(2 * LATE),
    Event.BATCH_CANCEL: lambda one: one.queue.batch("nightly").cancel(),
    Event.REDRIVE: lambda one: one.queue.redrive(),
    Event.SEEK: lambda one: [one.queue.seek("default", place) for place in ("end", "start")],
    Event.REMOVE: lambda one: one.queue.remove([one.id]),
}
# Other ways of the same events.
AT_ONCE: dict[Event, Callable[[Subject], object]] = {
    Event.NAK: lambda one: one.settle(Event.NAK, 0),
    Event.RESCHEDULE: lambda one: one.settle(Event.RESCHEDULE, 0),
}


class Kind(NamedTuple):
    """A kind of message with other possible transitions than a plain one."""

    delivery: Literal["at_least_once", "at_most_once"] = "at_least_once"
    max_retries: int = 7
    is_member: bool = False
    is_cancelled: bool = False
    address: str | None = None


KINDS = {
    "plain": Kind(),
    "at most once": Kind(delivery="at_most_once"),
    "without retries": Kind(max_retries=0),
    "member": Kind(is_member=True),
    "member of a cancelled batch": Kind(is_member=True, is_cancelled=True),
    "addressed": Kind(address="desk"),
}
# How to bring a ready message into a state; the six outcomes are reached through `leased`, or by time.
ROADS: dict[State, tuple[Event, ...]] = {
    State.READY: (),
    State.LEASED: (Event.RECEIVE,),
    State.HELD: (Event.RECEIVE, Event.NAK),
    State.SUCCEEDED: (Event.RECEIVE, Event.ACK),
    State.REJECTED: (Event.RECEIVE, Event.REJECT),
    State.FAILED: (Event.RECEIVE, Event.NAK),
    State.LEASE_EXPIRED: (Event.RECEIVE, Event.LEASE_END),
    State.EXPIRED: (Event.EXPIRE,),
    State.CANCELLED: (Event.BATCH_CANCEL,),
}


def put(store: Store, clock: Clock, kind: Kind, state: State) -> Subject | None:
    """A message of that kind in that state; None when the kind cannot reach it this way."""
    queue = store.queue("life", delivery=kind.delivery, max_retries=kind.max_retries)
    queue.flush()
    sender = queue.batch("nightly") if kind.is_member else queue
    message_id = sender.send(b"x", ttl_seconds=2 * LATE, deadline_at=later(clock), address=kind.address)
    if kind.is_member:
        queue.batch("nightly").start()
    one = Subject(store, queue, clock, message_id, 1)
    for event in ROADS[state]:
        if event is Event.RECEIVE:
            [delivery] = queue.receive(lease_seconds=LEASE)
            one = one._replace(token=delivery.token)
            if kind.is_cancelled:
                queue.batch("nightly").cancel()
        else:
            with suppress(PenstockError):
                EVENTS[event](one)
    return one if one.state is state else None


def steps(one: Subject, event: Event, happen: Callable[[Subject], object]) -> Iterator[Edge]:
    """The transitions that an event caused."""
    before, cancelled = one.trail, one.queue.stats("default").outcomes["cancelled"]
    try:
        happen(one)
    except PenstockError:
        assert one.trail == before, f"{event} was refused and changed something"
    after = one.trail
    state = before[-1][1]
    if not after:
        # Its trail was removed with it: only the count shows whether it ended now.
        if one.queue.stats("default").outcomes["cancelled"] > cancelled:
            yield state, Event.REMOVE, State.CANCELLED
        return
    assert after[: len(before)] == before, "what happened was rewritten"
    for said, reached in after[len(before) :]:
        yield state, said, reached
        state = reached


@pytest.mark.parametrize("client_kind", ["sync"], indirect=True)  # the engine is compared with the table
def test_every_event_in_every_state_does_what_the_table_says(store: Store, clock: Clock) -> None:
    legal: set[Edge] = {(source, row.event, row.target) for row in TABLE for source in row.sources}
    seen: set[Edge] = set()
    for name, kind in KINDS.items():
        for state in ROADS:
            one: Subject | None = None
            for event, happen in [*EVENTS.items(), *AT_ONCE.items()]:
                if name != "plain" and not is_telling(name, event):
                    continue
                # An unchanged message is used for the next event too.
                one = one or put(store, clock, kind, state)
                if one is None:
                    break
                edges = list(steps(one, event, happen))
                illegal = [edge for edge in edges if edge not in legal]
                assert not illegal, f"{name}, {state}, {event}: {illegal} is not in the table"
                seen.update(edges)
                one = None if edges or not one.trail else one
    seen |= set(born(store, clock))
    assert legal - seen == set(), "the table has more than the engine does"


def is_telling(kind: str, event: Event) -> bool:
    """Transitions that differ for other kinds than the plain one."""
    if kind == "addressed":
        return event is Event.SEEK
    if kind.startswith("member"):
        settled = (Event.NAK, Event.RESCHEDULE, Event.LEASE_END, Event.RELEASE)
        return event in (Event.BATCH_CANCEL, *settled, Event.REDRIVE, Event.SEEK)
    if kind == "at most once":
        return event in (Event.LEASE_END, Event.DEADLINE, Event.NAK, Event.REDRIVE, Event.SEEK)
    return event in (Event.NAK, Event.LEASE_END, Event.REDRIVE, Event.SEEK)


def born(store: Store, clock: Clock) -> Iterator[Edge]:
    """The first transitions: send, held, and events of messages that were never delivered."""
    for event in (Event.DUE, Event.EXPIRE, Event.DEADLINE, Event.REMOVE, Event.BATCH_START, Event.BATCH_CANCEL):
        queue = store.queue("life", delivery="at_most_once")
        queue.flush()
        far = 3 * LATE if event in (Event.EXPIRE, Event.DEADLINE) else DELAY
        if event in (Event.BATCH_START, Event.BATCH_CANCEL):
            message_id = queue.batch("nightly").send(b"x")
        else:
            ttl_seconds = 2 * LATE if event is Event.EXPIRE else None
            deadline_at = later(clock) if event is Event.DEADLINE else None
            message_id = queue.send(b"x", delay_seconds=far, ttl_seconds=ttl_seconds, deadline_at=deadline_at)
        queue.receive()
        one = Subject(store, queue, clock, message_id, 1)
        assert one.trail == [(Event.SEND, State.HELD)]
        yield None, Event.SEND, State.HELD
        yield from steps(one, event, EVENTS[event])
    queue = store.queue("life")
    queue.flush()
    one = Subject(store, queue, clock, queue.send(b"x"), 1)
    assert one.trail == [(Event.SEND, State.READY)]
    yield None, Event.SEND, State.READY


def later(clock: Clock) -> datetime:
    return clock.now + timedelta(seconds=LATE)
