"""The life of a message in a group. Rule 1: every transition there is stands in TABLE, and nowhere else.

A message is born **held** (it has a delay, or its batch has not started) or **ready**. A receive makes it **leased**:
one consumer may settle it until the lease ends. What happens then depends on the settlement, on the retries that are
left, on its times and on its batch; the conditions are spelled out in the table. The six other states are outcomes:
the message has ended in this group. Every outcome but `succeeded` leaves a dead letter; a redrive takes the dead
letter back to ready, with attempts starting again.

Some events do not come from the message's own story. A **release** gives a message back without counting the attempt,
because nobody failed: an ordered queue does it to what it handed out behind a message that must be tried again, so that
a key is never processed out of order, and a receive whose caller has gone does it to what nobody took. A message that
`expires` or is `cancelled` while nobody holds it ends without ever being handed out. And a seek is the operator's: it
reads messages again, or passes them by; so is a **remove**, which ends a message wherever it is live and takes it out
of the log at once, as if its retention were over.

`docs/lifecycle.md` is written from this table by `python -m penstock.domain.lifecycle`, and a test compares the two.
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
    Transition((State.LEASED,), Event.RELEASE, "given back without counting the attempt", State.READY),
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


def is_legal(source: State | None, event: Event, target: State) -> bool:
    """Whether the table has this step; None is the state before the send."""
    return (source, event, target) in _EDGES


def markdown() -> str:
    """The lifecycle page of the documentation: a diagram and the table, both from TABLE."""
    return _PAGE.format(diagram="\n".join(_diagram()), rows="\n".join(_rows()))


def _diagram() -> list[str]:
    lines = []
    for transition in TABLE:
        label = f"{transition.event}: {transition.condition}" if transition.condition else transition.event
        for source in transition.sources:
            lines.append(f"    {source or '[*]'} --> {transition.target}: {label}")
    lines.extend(f"    {outcome} --> [*]" for outcome in OUTCOMES)
    return lines


def _rows() -> list[str]:
    return [
        f"| {', '.join(source or '(new)' for source in row.sources)} | {row.event} | {row.condition} | {row.target} |"
        for row in TABLE
    ]


_PAGE = """# The life of a message in a group

Written from `src/penstock/domain/lifecycle.py` by `python -m penstock.domain.lifecycle`; change it there.

```mermaid
stateDiagram-v2
{diagram}
```

| from | event | condition | to |
|---|---|---|---|
{rows}

A deadline that passes while an `at_least_once` message is leased only ends the lease; the message is never dropped
for it. Every outcome but `succeeded` leaves a dead letter, except for what was removed: there is no message to keep.
"""


if __name__ == "__main__":
    print(markdown(), end="")
