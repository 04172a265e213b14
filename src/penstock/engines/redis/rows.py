"""Conversion of replies to results."""

from __future__ import annotations

from typing import Any

from penstock.domain.identity import made_id
from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.domain.message import BYTES, Message, decode_headers
from penstock.domain.results import (
    AddressState,
    Archived,
    AuditEntry,
    BatchInfo,
    ConsumerInfo,
    DeadLetter,
    GroupStats,
    LeaseInfo,
    MessageState,
    MessageSummary,
)
from penstock.domain.timestamps import SECOND, to_optional_time, to_time
from penstock.engines import message_rows
from penstock.engines.contract import Receipt, Row

# The order in which the functions count outcomes.
_COUNTED = ("succeeded", "rejected", "failed", "lease_expired", "expired", "cancelled")
assert set(_COUNTED) == set(OUTCOMES)
# The places of texts in a row of a receipt and of a message.
_RECEIPT_TEXTS = (2, 3, 4, 7, 8, 9, 10)
_MESSAGE_TEXTS = (3, 4, 5, 8, 9, 10, 11)
_SHORT = 5


def text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def receipt_row(row: list[Any]) -> Row:
    if len(row) == _SHORT:
        position, created_at, content_type, payload, ends_at = row
        kind = None if content_type is None else content_type.decode()
        return (position, created_at, None, kind, None, None, None, None, None, None, None, payload, 0, 1, ends_at)
    return tuple(_with_texts(row, _RECEIPT_TEXTS))


def receipt(reply: list[Any], queue: str, consumer: str) -> Receipt:
    group, salt, ((token, found),) = reply
    return Receipt(token, queue, group.decode(), consumer, salt, [receipt_row(row) for row in found])


def _with_texts(row: list[Any], places: tuple[int, ...]) -> list[Any]:
    for place in places:
        if row[place] is not None:
            row[place] = row[place].decode()
    return row


def message(queue: str, row: list[Any]) -> Message:
    row = _with_texts(row, _MESSAGE_TEXTS)
    return message_rows.message(queue, row[3], tuple(row))


def audit_entry(row: list[Any]) -> AuditEntry:
    at, event, state, by, group, reason, attempt = row
    return AuditEntry(
        to_time(at), Event(event.decode()), State(state.decode()), by.decode(), text(group), text(reason), attempt
    )


def message_state(row: list[Any] | None) -> MessageState | None:
    return None if row is None else MessageState(State(row[0].decode()), text(row[1]))


def address_state(row: list[Any] | None) -> AddressState | None:
    if row is None:
        return None
    message_id, outcome, reason, code = row
    ended = None if outcome is None else State(outcome.decode())
    return AddressState(message_id.decode(), ended, text(reason), text(code))


def archived(queue: str, group: str, row: list[Any]) -> Archived:
    found, outcome, reason, attempts, at = row
    return Archived(message(queue, found), group, State(outcome.decode()), text(reason), attempts, to_time(at))


def dead_letter(queue: str, salt: int, row: list[Any]) -> DeadLetter:
    group, position, outcome, reason, attempts, died_at, created_at, chosen, content_type, headers, payload = row
    return DeadLetter(
        id=text(chosen) or made_id(created_at, salt, position),
        queue=queue,
        group=group.decode(),
        position=position,
        payload=payload,
        content_type=text(content_type) or BYTES,
        headers=decode_headers(text(headers)),
        outcome=State(outcome.decode()),
        reason=text(reason),
        attempts=attempts,
        died_at=to_time(died_at),
        created_at=to_time(created_at),
    )


def lease(row: list[Any]) -> LeaseInfo:
    message_id, position, token, consumer, attempt, created_at, leased_at, ends_at = row
    times = to_time(created_at), to_time(leased_at), to_time(ends_at)
    return LeaseInfo(message_id.decode(), position, token, consumer.decode(), attempt, *times)


def consumer(queue: str, row: list[Any]) -> ConsumerInfo:
    number, name, group, index, living, registered, beat, seconds, missed, per_sweep = row
    heart = float(seconds), missed, per_sweep
    return ConsumerInfo(
        number, name.decode(), queue, group.decode(), index, living, to_time(registered), to_time(beat), *heart
    )


def batch(queue: str, row: list[Any]) -> BatchInfo:
    _, name, state, total, remaining, cancelled, _ = row
    return BatchInfo(name.decode(), queue, state.decode(), total, remaining, total - remaining, cancelled)


def summary(row: list[Any], state: State, name: str | None = None) -> MessageSummary:
    message_id, position, created_at, attempt, reason, due_at = row
    return MessageSummary(
        message_id.decode(),
        state,
        position,
        to_time(created_at),
        attempt,
        due_at=to_optional_time(due_at),
        reason=text(reason),
        batch=name,
    )


def stats(row: list[Any]) -> tuple[str, GroupStats]:
    name, *counts = row
    size = len(_COUNTED)
    outcomes = dict(zip(_COUNTED, counts[:size], strict=True))
    endings = {one: outcomes[one] + undone for one, undone in zip(_COUNTED, counts[size : 2 * size], strict=True)}
    failed_attempts, queue_held, *rest = counts[2 * size :]
    if len(rest) == 2:
        return name.decode(), _stream_stats(queue_held, rest[0], rest[1], outcomes, endings)
    available, leased, redo, backing_off, dead, consumers, oldest = rest
    held = queue_held + backing_off
    return name.decode(), GroupStats(
        total=held + available + redo + leased + outcomes["succeeded"] + dead,
        in_progress=leased,
        redo=redo,
        done=outcomes["succeeded"],
        available=available,
        held=held,
        dead=dead,
        consumers=consumers,
        oldest_age_seconds=None if oldest is None else oldest / SECOND,
        lag=available,
        outcomes=outcomes,
        endings=endings,
        failed_attempts=failed_attempts,
    )


def _stream_stats(held: int, every: int, lag: int, outcomes: dict[str, int], endings: dict[str, int]) -> GroupStats:
    """A stream group has no leases: messages before its cursor are done."""
    return GroupStats(
        total=every + held,
        in_progress=0,
        redo=0,
        done=every - lag,
        available=lag,
        held=held,
        dead=0,
        consumers=0,
        oldest_age_seconds=None,
        lag=lag,
        outcomes=outcomes,
        endings=endings,
    )
