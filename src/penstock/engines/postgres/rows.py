"""Conversion between rows of the database and values of the domain."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

import msgspec

from penstock.domain.lifecycle import Event, State
from penstock.domain.message import BYTES, SYSTEM, Draft, Message, Options, decode_headers
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
    MessageState,
    QueueInfo,
)
from penstock.domain.timestamps import to_optional_time, to_time
from penstock.engines import message_rows

Row = tuple[Any, ...]


def with_policy(statement: str) -> str:
    """A statement that selects the policy fields of a queue by name, in the order of `Policy`."""
    return statement.replace("{policy}", ", ".join(Policy.__struct_fields__))


def policy(row: Row) -> Policy:
    return Policy(*row)


def queue_info(row: Row) -> QueueInfo:
    name, created_at, groups, *fields = row
    return QueueInfo(name, Policy(*fields), tuple(groups), to_time(created_at))


def message(row: Row, queue: str) -> Message:
    return message_rows.message(queue, row[3], row)


def storable(reason: str | None) -> str | None:
    """PostgreSQL's text has no NUL: a noncharacter replaces it."""
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
    return GroupStats(*row[1:])


def batch_info(row: Row, queue: str) -> BatchInfo:
    name, state, total, remaining, cancelled = row
    return BatchInfo(name, queue, state, total, remaining, total - remaining, cancelled)


def consumer_info(row: Row) -> ConsumerInfo:
    consumer_id, name, queue, group, index, living, registered_at, heartbeat_at, *heart = row
    return ConsumerInfo(
        consumer_id, name, queue, group, index, living, to_time(registered_at), to_time(heartbeat_at), *heart
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
        ttl_seconds=options.get("ttl_seconds"),
        key=options.get("key"),
    )


def _decoded(text: str) -> bytes:
    from base64 import b64decode

    return b64decode(text)


# -- drafts ----------------------------------------------------------------------------------------------------------


def options_json(drafts: Sequence[Draft]) -> str:
    """Options parallel to the payloads, without unset ones."""
    return _encode([_given(options) for _, _, options in drafts]).decode()


def stored(draft: Draft | None) -> str | None:
    """The stored form of a message that the database sends later."""
    if draft is None:
        return None
    payload, content_type, options = draft
    fields = {"payload": b64encode(payload).decode(), "content_type": content_type, "options": _given(options)}
    return _encode(fields).decode()


def _given(options: Options) -> dict[str, Any]:
    return {name: value for name, value in msgspec.structs.asdict(options).items() if value is not None}


_encode = msgspec.json.Encoder().encode
