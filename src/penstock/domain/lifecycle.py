"""The lifecycle of a message in a group: its states, its events, and the table of all legal transitions.

A message starts **held** (delayed, or its batch has not started) or **ready**. A receive makes it **leased**: one
consumer may settle it until the lease ends. The next state depends on the settlement, the retries left, its times and
its batch. The six other states are outcomes: the message has ended in this group. Every outcome but `succeeded` leaves
a dead letter; a redrive makes it ready again, with attempts reset.

A **release** returns a message without counting the attempt: an ordered queue releases the messages behind one that is
retried, and a receive is released when its caller has disconnected. A message can expire or be cancelled without ever
being received. Operators **seek** (messages are read again, or passed by) and **remove** (the message ends wherever it
is live, and leaves the log at once).

TABLE is the specification. `settlement.Decision` refuses a transition that it does not have, the conformance tests
check the audit trails of every engine against it, and `scripts/reference.py` writes `docs/lifecycle.md` from it.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class State(StrEnum):
    HELD = "held"
    READY = "ready"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    REJECTED = "rejected"
    FAILED = "failed"
    LEASE_EXPIRED = "lease_expired"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


LIVE = (State.HELD, State.READY, State.LEASED)
OUTCOMES = tuple(state for state in State if state not in LIVE)
DEAD_OUTCOMES = tuple(state for state in OUTCOMES if state is not State.SUCCEEDED)


class Event(StrEnum):
    SEND = "send"
    DUE = "due"
    BATCH_START = "batch_start"
    RECEIVE = "receive"
    ACK = "ack"
    NAK = "nak"
    REJECT = "reject"
    RESCHEDULE = "reschedule"
    LEASE_END = "lease_end"
    RELEASE = "release"
    DEADLINE = "deadline"
    EXPIRE = "expire"
    BATCH_CANCEL = "batch_cancel"
    REDRIVE = "redrive"
    SEEK = "seek"
    REMOVE = "remove"


# Events that end an attempt without success, whether the message is retried or not.
FAILED_ATTEMPTS = (Event.NAK, Event.REJECT, Event.LEASE_END)


class Transition(NamedTuple):
    sources: tuple[State | None, ...]
    event: Event
    condition: str
    target: State


TABLE = (
    Transition((None,), Event.SEND, "with a delay, or into a batch that has not started", State.HELD),
    Transition((None,), Event.SEND, "", State.READY),
    Transition((State.HELD,), Event.DUE, "available_at or the end of the backoff has come", State.READY),
    Transition((State.HELD,), Event.BATCH_START, "", State.READY),
    Transition((State.READY,), Event.RECEIVE, "attempt + 1", State.LEASED),
    Transition((State.LEASED,), Event.ACK, "", State.SUCCEEDED),
    Transition((State.LEASED,), Event.NAK, "retries left, after a backoff", State.HELD),
    Transition((State.LEASED,), Event.NAK, "retries left, without delay", State.READY),
    Transition((State.LEASED,), Event.NAK, "no retries left, or at_most_once and deadline passed", State.FAILED),
    Transition((State.LEASED,), Event.NAK, "retries left, but the batch was cancelled", State.CANCELLED),
    Transition((State.LEASED,), Event.REJECT, "", State.REJECTED),
    Transition((State.LEASED,), Event.RESCHEDULE, "attempts start again, expires_at moves along", State.HELD),
    Transition((State.LEASED,), Event.RESCHEDULE, "without delay", State.READY),
    Transition((State.LEASED,), Event.RESCHEDULE, "the batch was cancelled", State.CANCELLED),
    Transition((State.LEASED,), Event.LEASE_END, "at_least_once, retries left", State.READY),
    Transition((State.LEASED,), Event.LEASE_END, "at_least_once, no retries left", State.FAILED),
    Transition((State.LEASED,), Event.LEASE_END, "at_most_once", State.LEASE_EXPIRED),
    Transition((State.LEASED,), Event.LEASE_END, "retries left, but the batch was cancelled", State.CANCELLED),
    Transition((State.LEASED,), Event.RELEASE, "returned without counting the attempt", State.READY),
    Transition((State.LEASED,), Event.RELEASE, "the same, but the batch was cancelled", State.CANCELLED),
    Transition(LIVE, Event.DEADLINE, "at_most_once", State.EXPIRED),
    Transition(LIVE, Event.EXPIRE, "", State.EXPIRED),
    Transition((State.HELD, State.READY), Event.BATCH_CANCEL, "", State.CANCELLED),
    Transition(DEAD_OUTCOMES, Event.REDRIVE, "attempts start again", State.READY),
    Transition(OUTCOMES, Event.SEEK, "the group was moved back before it", State.READY),
    Transition(
        (State.READY,),
        Event.SEEK,
        "the primary group was moved past it, and it has an address or a batch",
        State.CANCELLED,
    ),
    Transition(LIVE, Event.REMOVE, "removed or trimmed by an operator; the message goes too", State.CANCELLED),
)

_EDGES = {(source, transition.event, transition.target) for transition in TABLE for source in transition.sources}
_STEPS = {(transition.event, transition.target) for transition in TABLE}


def is_legal(source: State | None, event: Event, target: State) -> bool:
    """Whether the table has this transition; None is the state before the send."""
    return (source, event, target) in _EDGES


def can_lead_to(event: Event, target: State) -> bool:
    """Whether the table has a transition by this event into this state."""
    return (event, target) in _STEPS
