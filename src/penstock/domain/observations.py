"""What can be read off a store: small frozen values, the same from every engine and through every door."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from penstock.domain.lifecycle import Event, State
from penstock.domain.message import Message, decode_json
from penstock.domain.policy import Policy


class GroupStats(msgspec.Struct, frozen=True):
    """One group's view of a queue, in one snapshot.

    total = held + available + redo + in_progress + done + dead. `redo` counts due retries, `available` messages that
    were never handed out; `lag` is how many messages of the log the group has not read yet. `outcomes` counts how
    messages ended here since the queue was made, also those whose dead letters are gone.
    """

    total: int
    in_progress: int
    redo: int
    done: int
    available: int
    held: int
    dead: int
    consumers: int
    oldest_age_seconds: float | None
    lag: int
    outcomes: dict[str, int]


class QueueInfo(msgspec.Struct, frozen=True):
    name: str
    policy: Policy
    groups: tuple[str, ...]
    created_at: datetime


class DeadLetter(msgspec.Struct, frozen=True):
    id: str
    queue: str
    group: str
    position: int
    payload: bytes
    content_type: str
    headers: dict[str, str]
    outcome: State
    reason: str | None
    attempts: int
    died_at: datetime
    created_at: datetime

    def json(self) -> Any:
        return decode_json(self.payload)


class AuditEntry(msgspec.Struct, frozen=True):
    """One step of a message: the event, and the state it led to. `group` is None for what happened to all groups."""

    at: datetime
    event: Event
    state: State
    by: str
    group: str | None
    reason: str | None
    attempt: int


class Archived(msgspec.Struct, frozen=True):
    """A message that has ended in a group."""

    message: Message
    group: str
    outcome: State
    reason: str | None
    attempts: int
    finished_at: datetime


class Explanation(msgspec.Struct, frozen=True):
    """Where a message is in a group, why it is not running, and what to do about it."""

    id: str
    queue: str
    group: str
    state: State
    because: str
    advice: str | None = None


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A registered consumer. `index` is its place in birth order among the `living` ones of its queue and group."""

    id: int
    name: str
    queue: str
    group: str
    index: int
    living: int
    registered_at: datetime
    heartbeat_at: datetime
    heartbeat_seconds: float


class LeaseInfo(msgspec.Struct, frozen=True):
    """A message in flight: who has it, since when and until when, and the token that settles it."""

    id: str
    position: int
    token: int
    consumer: str
    attempt: int
    created_at: datetime
    leased_at: datetime
    ends_at: datetime


class BatchInfo(msgspec.Struct, frozen=True):
    """`state` is open, running, cancelling, finished or cancelled."""

    name: str
    queue: str
    state: str
    total: int
    remaining: int
    finished: int


class MessageState(msgspec.Struct, frozen=True):
    """Where a message stands in a group, and the reason that was given for it."""

    state: State
    reason: str | None


class AddressState(msgspec.Struct, frozen=True):
    """The newest message of an address; `outcome` is None while it is live."""

    id: str
    outcome: State | None
    reason: str | None


class SweepReport(msgspec.Struct, frozen=True):
    """What one maintenance pass did, in messages (and consumers)."""

    reclaimed: int = 0
    promoted: int = 0
    expired: int = 0
    fired: int = 0
    trimmed: int = 0
    purged: int = 0
    removed_consumers: int = 0


class Part(msgspec.Struct, frozen=True):
    """A piece of a window that one task can read: of which table, between which marks, which ranges of it, and how many
    rows they hold, or about how many if they were not counted. The witness shows whoever reads whether rows have gone
    since. What its numbers and those of a range mean is the engine's business."""

    queue: str
    ranges: tuple[tuple[int, int], ...]
    count: int
    table: str = "messages"
    start: int | str = 0
    end: int | str = 0
    is_counted: bool = True
    witness: tuple[int, ...] = ()


class Check(msgspec.Struct, frozen=True):
    """One finding of `penstock doctor`: `level` is ok, warning or error."""

    name: str
    level: str
    finding: str
    advice: str | None = None


class Repair(msgspec.Struct, frozen=True):
    """One finding of `penstock repair`: a state that a fault left behind, what mends it, and whether that was done."""

    name: str
    finding: str
    action: str
    done: bool
