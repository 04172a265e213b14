"""Claims: taking over the leases of another consumer, as XCLAIM does, with or without FORCE."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.domain import reasons
from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.domain.results import LeaseInfo
from penstock.engines.contract import Receipt
from penstock.engines.positional import (
    audit,
    cursors,
    deliveries,
    leases,
    log,
    queues,
    settlements,
)
from penstock.engines.positional.audit import AuditStep
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def take_over(
    transaction: Transaction,
    name: str,
    group_name: str,
    consumer: str,
    ids: Sequence[str],
    lease_seconds: float,
    counts: bool,
    force: bool,
) -> Receipt:
    queue = queues.get(transaction, name)
    group = queues.get_group(transaction, queue, group_name)
    queues.check_leasing(queue, group)
    event = Event.LEASE_END if counts else Event.RELEASE
    free: list[int] = []
    for message_id in dict.fromkeys(ids):
        held = leases.of_message(transaction, queue, group, message_id)
        if held:
            free += [one.position for one in held if _end_lease(transaction, queue, group, one, event, consumer)]
        elif force:
            place = log.locate(transaction, queue, message_id)
            position = None if place is None else place.position
            if position is not None and make_ready(transaction, queue, group, position):
                free.append(position)
    return deliveries.receive_again(transaction, queue, group, consumer, free, lease_seconds)


def _end_lease(
    transaction: Transaction, queue: StoredQueue, group: Group, lease: LeaseInfo, event: Event, consumer: str
) -> bool:
    """End the lease; return whether the message is ready to be received again."""
    flight = leases.flight(transaction, group, lease.token, lease.position)
    if flight is None:
        return False
    reason = reasons.TAKEN_OVER.format(consumer)
    return settlements.conclude(transaction, queue, group, flight, event, reason) is State.READY


def make_ready(transaction: Transaction, queue: StoredQueue, group: Group, position: int) -> bool:
    """Make a message ready out of order: unread, skipped, waiting for a retry, or ended. False when it has expired or
    is leased."""
    at = {"group_id": group.group_id, "position": position, "now": transaction.now}
    tracked = transaction.row("find_tracked", at)
    if tracked is not None:
        return _make_retry_ready(transaction, queue, group, position, state=tracked[3], attempt=tracked[4])
    message = transaction.row("message_to_claim", {**at, "trimmed_position": queue.trimmed_position})
    if message is None or transaction.value("lease_holder", at) is not None:
        return False
    lane_id, priority, expires_at, deadline_at, batch_id, is_unread = message
    last = audit.last_entry(transaction, queue, group, position)
    if last is not None and last.state in OUTCOMES:
        _undo_outcome(transaction, queue, group, position, last.state)
    if is_unread:
        transaction.run("skip_if_absent", at)
    row = {
        "group_id": group.group_id, "position": position, "lane_id": lane_id, "priority": priority,
        "state": State.READY.value, "attempt": 0, "until_at": transaction.now, "expires_at": expires_at,
        "deadline_at": deadline_at, "batch_id": batch_id, "token": None, "consumer": None, "reason": None,
    }  # fmt: skip
    transaction.run("put_tracked", row)
    return True


def _make_retry_ready(
    transaction: Transaction, queue: StoredQueue, group: Group, position: int, state: str, attempt: int
) -> bool:
    if state == State.HELD:
        transaction.run("make_retry_ready", {"group_id": group.group_id, "position": position})
        step = AuditStep(Event.DUE, State.READY, position, position, "system", None, attempt)
        audit.record(transaction, queue.queue_id, group.group_id, step)
    return state != State.LEASED


def _undo_outcome(transaction: Transaction, queue: StoredQueue, group: Group, position: int, outcome: State) -> None:
    """Undo the outcome, as a seek back does."""
    step = AuditStep(Event.SEEK, State.READY, position, position, "system", reasons.CLAIMED_BY_FORCE)
    audit.record(transaction, queue.queue_id, group.group_id, step)
    cursors.uncount_outcomes(transaction, group, {outcome: 1})
    transaction.run("remove_dead_letters", {"group_id": group.group_id, "first": position, "last": position})
