"""From rows to the values that every engine gives back, and from drafts to what the functions take."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.domain.lifecycle import Event, State
from penstock.domain.message import BYTES, SYSTEM, Draft, Message, Options, decode_headers
from penstock.domain.observations import (
    Archived,
    AuditEntry,
    BatchInfo,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    LeaseInfo,
    MessageState,
    QueueInfo,
)
from penstock.domain.policy import Policy
from penstock.domain.recurrence import Schedule
from penstock.domain.times import to_optional_time, to_time
from penstock.engines import messages

Row = tuple[Any, ...]
_FIELDS = msgspec.structs.fields(Policy)
# Columns of penstock.queue before the policy.
_POLICY_FROM = 8
_POLICY_UPTO = _POLICY_FROM + len(_FIELDS)


def policy(row: Row) -> Policy:
    """The columns of a queue that are its policy have the order of its fields."""
    return Policy(*row[_POLICY_FROM:_POLICY_UPTO])


def queue_info(row: Row) -> QueueInfo:
    return QueueInfo(row[1], policy(row), tuple(row[-1]), to_time(row[2]))


def message(row: Row, queue: str) -> Message:
    return messages.message(queue, row[3], row)


def storable(reason: str | None) -> str | None:
    """PostgreSQL's text has no NUL: what no text has (a noncharacter) stands for it."""
    return reason if reason is None or "\0" not in reason else reason.replace("\0", NUL)


def readable(reason: str | None) -> str | None:
    return reason if reason is None or NUL not in reason else reason.replace(NUL, "\0")


NUL = "\uffff"


def archived(row: Row, queue: str, group: str) -> Archived:
    outcome, reason, attempts, finished_at, *rest = row
    return Archived(
        message(tuple(rest), queue), group, State(outcome), readable(reason), attempts, to_time(finished_at)
    )


def dead_letter(row: Row, queue: str) -> DeadLetter:
    group, position, outcome, reason, attempts, died_at, created_at, message_id, content_type, headers, payload = row
    return DeadLetter(
        id=message_id,
        queue=queue,
        group=group,
        position=position,
        payload=payload,
        content_type=content_type or BYTES,
        headers=decode_headers(headers),
        outcome=State(outcome),
        reason=readable(reason),
        attempts=attempts,
        died_at=to_time(died_at),
        created_at=to_time(created_at),
    )


def audit_entry(row: Row) -> AuditEntry:
    at, event, state, by, group, reason, attempt = row
    return AuditEntry(to_time(at), Event(event), State(state), by or SYSTEM, group, readable(reason), attempt)


def message_state(row: Row) -> MessageState | None:
    state, reason = row
    return None if state is None else MessageState(State(state), readable(reason))


def lease_info(row: Row) -> LeaseInfo:
    position, created_at, message_id, token, consumer, attempt, leased_at, ends_at = row
    return LeaseInfo(
        message_id, position, token, consumer, attempt, to_time(created_at), to_time(leased_at), to_time(ends_at)
    )


def group_stats(row: Row) -> GroupStats:
    _, total, in_progress, redo, done, available, held, dead, consumers, oldest, lag, outcomes = row
    return GroupStats(total, in_progress, redo, done, available, held, dead, consumers, oldest, lag, outcomes)


def batch_info(row: Row, queue: str) -> BatchInfo:
    name, state, total, remaining = row
    return BatchInfo(name, queue, state, total, remaining, total - remaining)


def consumer_info(row: Row) -> ConsumerInfo:
    consumer_id, name, queue, group, index, living, registered_at, heartbeat_at, seconds = row
    return ConsumerInfo(
        consumer_id, name, queue, group, index, living, to_time(registered_at), to_time(heartbeat_at), seconds
    )


def schedule(row: Row) -> Schedule:
    name, cron, timezone, queue, stored, catch_up, paused, next_at, last_at = row
    options = stored.get("options") or {}
    return Schedule(
        name=name,
        cron=cron,
        timezone=timezone,
        queue=queue,
        payload=_decoded(stored["payload"]),
        content_type=stored.get("content_type") or BYTES,
        headers=decode_headers(options.get("headers")),
        priority=options.get("priority") or 0,
        catch_up=catch_up,
        paused=paused,
        next_at=to_optional_time(next_at),
        last_at=to_optional_time(last_at),
    )


def _decoded(text: str) -> bytes:
    from base64 import b64decode

    return b64decode(text)


# -- drafts ----------------------------------------------------------------------------------------------------------


def options_json(drafts: Sequence[Draft]) -> str:
    """Options parallel to the payloads; those that are not set are left out."""
    return _encode([_given(options) for _, _, options in drafts]).decode()


def stored(draft: Draft | None) -> str | None:
    """A message that is sent later, by the database."""
    if draft is None:
        return None
    payload, content_type, options = draft
    fields = {"payload": b64encode(payload).decode(), "content_type": content_type, "options": _given(options)}
    return _encode(fields).decode()


def _given(options: Options) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(options).items() if value is not None}


_encode = msgspec.json.Encoder().encode
