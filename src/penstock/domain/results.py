"""Results of reads: small frozen values, the same from every engine and through every interface."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from penstock.domain.lifecycle import Event, State
from penstock.domain.message import Message, decode_json
from penstock.domain.policy import Policy


class GroupStats(msgspec.Struct, frozen=True):
    """One group's view of a queue, in one snapshot.

    total = held + available + redo + in_progress + done + dead. `redo` counts due retries, `available` messages that
    were never handed out; `lag` is how many messages of the log the group has not read yet. `oldest_age_seconds` is how
    long the message has been ready that waits longest. `outcomes` counts the messages that stand ended here, also those
    whose dead letters are gone: a redrive, a seek back or a flush takes some back out.

    Two counters never fall. `endings` counts by outcome how often a message ended here: one that is redriven and ends
    again counts twice. `failed_attempts` counts attempts that did not succeed (nak, reject, lease ended), whether the
    message is tried again or not.
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
    endings: dict[str, int] = {}
    failed_attempts: int = 0


def unread_primary_group(policy: Policy, groups: Mapping[str, GroupStats]) -> str | None:
    """Return the primary group if messages wait in it and only other groups have ever received: every message is kept
    for it until it receives. A stream group, such as the lake's, does not count: it takes no worker's place."""
    primary = groups.get(policy.primary_group or "")
    if primary is None or not primary.available or _has_received(primary):
        return None
    return policy.primary_group if any(map(_has_received, groups.values())) else None


def _has_received(stats: GroupStats) -> bool:
    """Whether a message was ever leased in the group."""
    if stats.in_progress or stats.redo or stats.consumers or stats.failed_attempts:
        return True
    return any(stats.endings.get(outcome) for outcome in ("succeeded", "rejected", "failed", "lease_expired"))


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
    """One event of a message, and the resulting state. `group` is None for events in all groups."""

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
    """The state of a message in a group, why it is not running, and what helps. `trace` is the stack trace of its last
    error, if a worker stored one."""

    id: str
    queue: str
    group: str
    state: State
    because: str
    advice: str | None = None
    trace: str | None = None


class ConsumerInfo(msgspec.Struct, frozen=True):
    """A registered consumer. `index` is its place in birth order among the `living` ones of its queue and group. It
    sends a heartbeat every `heartbeat_seconds`, and is dead when it has missed more than `max_missed_heartbeats`; every
    `heartbeats_per_sweep` heartbeats it removes the dead consumers of its group."""

    id: int
    name: str
    queue: str
    group: str
    index: int
    living: int
    registered_at: datetime
    heartbeat_at: datetime
    heartbeat_seconds: float
    max_missed_heartbeats: int
    heartbeats_per_sweep: int


class ProcessInfo(msgspec.Struct, frozen=True):
    """A process that registered in several queues under one name."""

    name: str
    registered_at: datetime
    heartbeat_at: datetime
    heartbeat_seconds: float
    consumers: list[ConsumerInfo]


def processes_of(consumers: Iterable[ConsumerInfo]) -> list[ProcessInfo]:
    """Registrations by name, in birth order. Of several heartbeats the oldest counts: one queue may be stuck."""
    by_name: dict[str, list[ConsumerInfo]] = {}
    for one in consumers:
        by_name.setdefault(one.name, []).append(one)
    return [
        ProcessInfo(
            name,
            min(one.registered_at for one in own),
            min(one.heartbeat_at for one in own),
            min(one.heartbeat_seconds for one in own),
            own,
        )
        for name, own in by_name.items()
    ]


class LeaseInfo(msgspec.Struct, frozen=True):
    """A lease of one message: its consumer, its times, and the token that settles it."""

    id: str
    position: int
    token: int
    consumer: str
    attempt: int
    created_at: datetime
    leased_at: datetime
    ends_at: datetime


class BatchInfo(msgspec.Struct, frozen=True):
    """`state` is open, running, cancelling, finished or cancelled. `finished` counts the members that have ended in any
    way, `cancelled` those of them that were cancelled."""

    name: str
    queue: str
    state: str
    total: int
    remaining: int
    finished: int
    cancelled: int = 0


class MessageState(msgspec.Struct, frozen=True):
    """The state of a message in a group, with its reason."""

    state: State
    reason: str | None


class MessageSummary(msgspec.Struct, frozen=True):
    """A message in a list, without its payload: its state in a group.

    `due_at` is when a held message becomes ready (None while its batch has not started) or when a lease ends, `batch`
    the one that a held message belongs to. `position` is None while it is held, `attempt` where it was not looked up.
    `queue` is that of a member of a batch.
    """

    id: str
    state: State
    position: int | None
    created_at: datetime
    attempt: int | None = None
    due_at: datetime | None = None
    consumer: str | None = None
    leased_at: datetime | None = None
    reason: str | None = None
    batch: str | None = None
    queue: str | None = None


class MessagePage(msgspec.Struct, frozen=True):
    """`next` is `after` of the next page, None at the end."""

    messages: list[MessageSummary]
    next: str | None = None


class AddressState(msgspec.Struct, frozen=True):
    """The newest message of an address; `outcome` is None while it is live. `code` is the one that whoever gave it up
    knew the error by."""

    id: str
    outcome: State | None
    reason: str | None
    code: str | None = None


class SeekPreview(msgspec.Struct, frozen=True):
    """The effect of a seek: the new position, how many unread messages it would pass, and how many would be ready
    again."""

    position: int
    passed_by: int
    read_again: int


class RetentionPreview(msgspec.Struct, frozen=True):
    """The effect of a shorter retention: finished messages that would be removed earlier, and dead letters that the
    next sweep would remove."""

    messages: int
    dead_letters: int


class SweepReport(msgspec.Struct, frozen=True):
    """How many messages (and consumers) one maintenance pass handled."""

    reclaimed: int = 0
    promoted: int = 0
    expired: int = 0
    fired: int = 0
    trimmed: int = 0
    purged: int = 0
    removed_consumers: int = 0


class Part(msgspec.Struct, frozen=True):
    """A part of a window that one task reads: table, marks, ranges, and the number of rows, estimated unless
    `is_counted`. `witness` lets the reader detect rows that were removed since. The numbers in it and in ranges are the
    engine's."""

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
