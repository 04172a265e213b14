"""Response bodies of the API. A domain value without a payload is its own document."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw, UnsetType

from penstock.client.documents import payload_fields, with_payload
from penstock.client.view import DeliveryView
from penstock.domain.lifecycle import State
from penstock.domain.message import Message
from penstock.domain.policy import Policy
from penstock.domain.recurrence import Schedule
from penstock.domain.results import (
    Archived,
    AuditEntry,
    BatchInfo,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    LeaseInfo,
    ProcessInfo,
    QueueInfo,
)


class Content(msgspec.Struct, frozen=True, kw_only=True):
    """`payload` when it is JSON, else `payload_base64`."""

    content_type: str
    payload: Raw | UnsetType = UNSET
    payload_base64: str | UnsetType = UNSET


class MessageDocument(Content, frozen=True, kw_only=True):
    """`position` is null while the message is held."""

    id: str
    queue: str
    headers: dict[str, str]
    priority: int
    position: int | None
    created_at: datetime
    created_by: str
    available_at: datetime
    expires_at: datetime | None
    deadline_at: datetime | None
    address: str | None
    key: str | None
    batch: str | None


class DeliveryDocument(Content, frozen=True, kw_only=True):
    """A message under a lease. Settle it with its `id`, `token`, `group` and `position`."""

    id: str
    queue: str
    group: str
    consumer: str
    token: int
    attempt: int
    lease_ends_at: datetime
    position: int
    priority: int
    headers: dict[str, str]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    deadline_at: datetime | None
    address: str | None
    key: str | None
    batch: str | None


class DeadLetterDocument(Content, frozen=True, kw_only=True):
    id: str
    queue: str
    group: str
    position: int
    headers: dict[str, str]
    outcome: State
    reason: str | None
    attempts: int
    died_at: datetime
    created_at: datetime


class ArchivedDocument(msgspec.Struct, frozen=True, kw_only=True):
    message: MessageDocument
    group: str
    outcome: State
    reason: str | None
    attempts: int
    finished_at: datetime


class ScheduleDocument(Content, frozen=True, kw_only=True):
    """`next_at` is null while it is paused or when the rule has no more ticks."""

    name: str
    cron: str
    timezone: str
    queue: str
    headers: dict[str, str]
    priority: int
    catch_up: str
    paused: bool
    next_at: datetime | None
    last_at: datetime | None
    ttl_seconds: float | None
    key: str | None


def message_document(message: Message) -> MessageDocument:
    return MessageDocument(**with_payload(message))


def dead_letter_document(letter: DeadLetter) -> DeadLetterDocument:
    return DeadLetterDocument(**with_payload(letter))


def schedule_document(schedule: Schedule) -> ScheduleDocument:
    return ScheduleDocument(**with_payload(schedule))


def archived_document(archived: Archived) -> ArchivedDocument:
    fields = msgspec.structs.asdict(archived)
    return ArchivedDocument(**{**fields, "message": message_document(archived.message)})


def delivery_document(delivery: DeliveryView) -> DeliveryDocument:
    """Field by field: every delivery of every receive comes through here."""
    return DeliveryDocument(
        id=delivery.id,
        queue=delivery.queue,
        group=delivery.group,
        consumer=delivery.consumer,
        token=delivery.token,
        attempt=delivery.attempt,
        lease_ends_at=delivery.lease_ends_at,
        position=delivery.position,
        priority=delivery.priority,
        headers=delivery.headers,
        created_at=delivery.created_at,
        created_by=delivery.created_by,
        expires_at=delivery.expires_at,
        deadline_at=delivery.deadline_at,
        address=delivery.address,
        key=delivery.key,
        batch=delivery.batch,
        **payload_fields(delivery.payload, delivery.content_type),  # type: ignore[arg-type]  # each has its own type
    )


# -- several, and small ones -----------------------------------------------------------------------------------------


class Sent(msgspec.Struct, frozen=True):
    id: str


class SentMany(msgspec.Struct, frozen=True):
    """In the order of the messages."""

    ids: list[str]


class LineError(msgspec.Struct, frozen=True):
    """The error of one line; `error` is a code for programs."""

    line: int
    error: str
    detail: str


class StreamReport(msgspec.Struct, frozen=True):
    """`failed` lines were not sent; `errors` has the first of them."""

    lines: int
    sent: int
    failed: int
    errors: list[LineError]


class Deliveries(msgspec.Struct, frozen=True):
    deliveries: list[DeliveryDocument]


class SettledDocument(msgspec.Struct, frozen=True):
    """`state` is where the message is now; without one the lease was lost, and `detail` says why."""

    id: str
    ok: bool
    state: State | None
    error: str | None = None
    detail: str | None = None


class Leases(msgspec.Struct, frozen=True):
    """In the order of the log."""

    group: str
    leases: list[LeaseInfo]


class Settlements(msgspec.Struct, frozen=True):
    """In the order of the settlements."""

    results: list[SettledDocument]


class Extended(msgspec.Struct, frozen=True):
    id: str
    lease_ends_at: datetime


class Messages(msgspec.Struct, frozen=True):
    messages: list[MessageDocument]


class Archive(msgspec.Struct, frozen=True):
    archived: list[ArchivedDocument]


class DeadLetters(msgspec.Struct, frozen=True):
    """`next` is the parameter `before` of the next page, null at the end."""

    dead_letters: list[DeadLetterDocument]
    next: str | None


class Audit(msgspec.Struct, frozen=True):
    entries: list[AuditEntry]


class Queues(msgspec.Struct, frozen=True):
    queues: list[QueueInfo]


class QueueDocument(msgspec.Struct, frozen=True):
    name: str
    created_at: datetime
    policy: Policy
    groups: dict[str, GroupStats]
    consumers: list[ConsumerInfo]
    batches: list[BatchInfo]


class PolicyDocument(msgspec.Struct, frozen=True):
    name: str
    policy: Policy


class Groups(msgspec.Struct, frozen=True):
    groups: dict[str, GroupStats]


class Consumers(msgspec.Struct, frozen=True):
    consumers: list[ConsumerInfo]


class Processes(msgspec.Struct, frozen=True):
    processes: list[ProcessInfo]


class Batches(msgspec.Struct, frozen=True):
    batches: list[BatchInfo]


class Schedules(msgspec.Struct, frozen=True):
    schedules: list[ScheduleDocument]


class Count(msgspec.Struct, frozen=True):
    count: int


class Sought(msgspec.Struct, frozen=True):
    position: int


class Removed(msgspec.Struct, frozen=True):
    name: str


class Me(msgspec.Struct, frozen=True):
    """The authenticated user and its rights."""

    name: str
    role: str
    rights: list[str]
    queues: list[str]
