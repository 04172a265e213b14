"""The audit: one entry for each event, over a range of positions."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.domain.lifecycle import Event, State
from penstock.domain.message import SYSTEM
from penstock.domain.results import AuditEntry
from penstock.domain.timestamps import to_time
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue

# Wider ranges are split into several entries, so that a lookup by position scans at most this many positions.
MAX_SPAN = 1024


class AuditStep(msgspec.Struct, frozen=True):
    """One event of the messages from `first` to `last`."""

    event: Event
    state: State
    first: int
    last: int
    by: str | None = None
    reason: str | None = None
    attempt: int = 0
    token: int | None = None
    code: str | None = None


def record(transaction: Transaction, queue_id: int, group_id: int | None, step: AuditStep) -> None:
    for first in range(step.first, step.last + 1, MAX_SPAN):
        transaction.run("record_entry", _entry(transaction, queue_id, group_id, step, first))
    if step.code is not None:
        transaction.run("record_error_code", {"code": step.code, "queue_id": queue_id})


def record_all(transaction: Transaction, queue_id: int, group_id: int | None, steps: Iterable[AuditStep]) -> None:
    """Write several steps, in the order given, with one statement."""
    rows = [
        _entry(transaction, queue_id, group_id, step, first)
        for step in steps
        for first in range(step.first, step.last + 1, MAX_SPAN)
    ]
    transaction.run_many("record_entry", rows)


def record_leases(
    transaction: Transaction,
    queue: StoredQueue,
    group: Group,
    event: Event,
    state: State,
    token: int,
    first: int,
    last: int,
) -> None:
    """Write the same step for all leases of a receive between two positions, without reading the leases. They must be
    contiguous, and none wider than MAX_SPAN."""
    bindings = {
        "last_entry": transaction.value("last_entry", {"queue_id": queue.queue_id}),
        "queue_id": queue.queue_id,
        "group_id": group.group_id,
        "now": transaction.now,
        "event": event,
        "state": state,
        "token": token,
        "first": first,
        "last": last,
    }
    transaction.run("record_lease_entries", bindings)


def _entry(
    transaction: Transaction, queue_id: int, group_id: int | None, step: AuditStep, first: int
) -> tuple[int | str | None, ...]:
    last = min(step.last, first + MAX_SPAN - 1)
    what = (step.event, step.state, step.by, step.reason, step.attempt, step.token)
    return (last, first, queue_id, group_id, transaction.now, *what)


def entries(transaction: Transaction, queue: StoredQueue, position: int) -> list[AuditEntry]:
    bindings = {"position": position, "queue_id": queue.queue_id, "span": MAX_SPAN - 1}
    return [
        AuditEntry(to_time(at), Event(event), State(state), by or SYSTEM, group, reason, attempt)
        for at, event, state, by, group, reason, attempt in transaction.rows("audit_entries", bindings)
    ]


def last_entry(transaction: Transaction, queue: StoredQueue, group: Group, position: int) -> AuditEntry | None:
    """The last audit entry of a message in a group."""
    found = [entry for entry in entries(transaction, queue, position) if entry.group in (None, group.name)]
    return found[-1] if found else None
