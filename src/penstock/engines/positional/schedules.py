"""Schedules: one message per tick, however many processes sweep: the transaction that sends it advances the tick."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.domain.message import BYTES, Draft, check_size, decode_headers
from penstock.domain.policy import Policy
from penstock.domain.recurrence import CatchUp, Schedule, due_ticks, next_tick
from penstock.domain.refusals import no_schedule
from penstock.domain.timestamps import to_optional_time, to_time
from penstock.engines.positional import messages, queues
from penstock.engines.positional.batches import decode_draft, encode_draft
from penstock.engines.positional.database import Transaction


def put(
    transaction: Transaction, name: str, cron: str, timezone: str, queue: str, draft: Draft, catch_up: CatchUp
) -> Schedule:
    """Create or replace a schedule. An unchanged rule keeps its next tick, so that declaring it at every start loses
    none."""
    found = queues.find(transaction, queue)
    check_size(draft[0], (Policy() if found is None else found.policy).max_payload_bytes)
    bindings: dict[str, Any] = {
        "name": name,
        "cron": cron,
        "timezone": timezone,
        "queue": queue,
        "message": encode_draft(draft),
        "catch_up": catch_up,
        "paused": 0,
        "next_at": next_tick(cron, timezone, transaction.now),
        "last_at": None,
    }
    old = transaction.row("find_schedule", {"name": name})
    if old is not None:
        bindings.update(paused=old[6], last_at=old[8])
        if (old[1], old[2]) == (cron, timezone) or old[6]:
            bindings["next_at"] = old[7]
    transaction.run("put_schedule", bindings)
    return get(transaction, name)


def every(transaction: Transaction) -> list[Schedule]:
    return [_schedule(row) for row in transaction.rows("schedules")]


def get(transaction: Transaction, name: str) -> Schedule:
    return _schedule(_row(transaction, name))


def pause(transaction: Transaction, name: str, paused: bool) -> Schedule:
    _, cron, timezone, queue, message, catch_up, was_paused, next_at, last_at = _row(transaction, name)
    if bool(was_paused) != paused:
        next_at = None if paused else next_tick(cron, timezone, transaction.now)
    bindings = {
        "name": name,
        "cron": cron,
        "timezone": timezone,
        "queue": queue,
        "message": message,
        "catch_up": catch_up,
        "paused": int(paused),
        "next_at": next_at,
        "last_at": last_at,
    }
    transaction.run("put_schedule", bindings)
    return get(transaction, name)


def remove(transaction: Transaction, name: str) -> None:
    _row(transaction, name)
    transaction.run("remove_schedule", {"name": name})


def run(transaction: Transaction, name: str) -> str:
    """Send the message now, without changing the ticks."""
    row = _row(transaction, name)
    queue = queues.ensure(transaction, row[3])
    (message_id,) = messages.put(transaction, queue, [_stamped(decode_draft(row[4]), name, transaction.now)])
    return message_id


def fire(transaction: Transaction, name: str) -> int:
    """Send the messages of a schedule's due ticks, unless another sweep has; return how many."""
    row = transaction.row("find_schedule", {"name": name})
    if row is None or row[7] is None or row[7] > transaction.now:
        return 0
    _, cron, timezone, queue_name, message, catch_up, _, next_at, _ = row
    due, following = due_ticks(cron, timezone, next_at, transaction.now, catch_up)
    if due:
        queue = queues.ensure(transaction, queue_name)
        messages.put(transaction, queue, [_stamped(decode_draft(message), name, tick) for tick in due])
    last_at = due[-1] if due else None
    transaction.run("advance_schedule", {"name": name, "next_at": following, "last_at": last_at})
    return len(due)


def _stamped(draft: Draft, schedule: str, tick: int) -> Draft:
    """The draft with headers that name the schedule and the tick."""
    payload, content_type, options = draft
    headers = {**decode_headers(options.headers), "penstock-schedule": schedule}
    headers["penstock-tick"] = to_time(tick).isoformat()
    return payload, content_type, msgspec.structs.replace(options, headers=msgspec.json.encode(headers).decode())


def _row(transaction: Transaction, name: str) -> tuple[Any, ...]:
    row = transaction.row("find_schedule", {"name": name})
    if row is None:
        known = [schedule.name for schedule in every(transaction)]
        raise no_schedule(name, known)
    return row


def _schedule(row: tuple[Any, ...]) -> Schedule:
    name, cron, timezone, queue, message, catch_up, paused, next_at, last_at = row
    payload, content_type, options = decode_draft(message)
    return Schedule(
        name=name,
        cron=cron,
        timezone=timezone,
        queue=queue,
        payload=payload,
        content_type=content_type or BYTES,
        headers=decode_headers(options.headers),
        priority=options.priority,
        catch_up=catch_up,
        paused=bool(paused),
        next_at=to_optional_time(next_at),
        last_at=to_optional_time(last_at),
        ttl_seconds=options.ttl_seconds,
        key=options.key,
    )
