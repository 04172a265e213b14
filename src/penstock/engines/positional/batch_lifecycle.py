"""Opening, starting and cancelling batches. Members are rows, so that a crash cannot corrupt a count."""

from __future__ import annotations

import msgspec

from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import Event, State
from penstock.domain.message import Draft, check_size
from penstock.domain.results import BatchInfo
from penstock.domain.validation import shown
from penstock.engines.positional import audit, batches, leases, outcomes, promotion, queues
from penstock.engines.positional.batches import StoredBatch
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def open_batch(
    transaction: Transaction, name: str, batch: str, end: Draft | None, abort: Draft | None, after: int | None
) -> BatchInfo:
    for message in (end, abort):
        if message is not None and message[2].address is not None:
            raise InvalidInput(f"the end or abort message of batch {shown(batch)} cannot have an address")
    queue = queues.ensure(transaction, name)
    for message in (end, abort):
        if message is not None:
            check_size(message[0], queue.policy.max_payload_bytes)
    joined = batches.reopen(transaction, queue, batch, after)
    if end is not None:
        transaction.run("set_end_message", {"batch_id": joined.batch_id, "message": batches.encode_draft(end)})
    if abort is not None:
        transaction.run("set_abort_message", {"batch_id": joined.batch_id, "message": batches.encode_draft(abort)})
    return batches.info(transaction, queue, joined)


def start(transaction: Transaction, name: str, batch_name: str, after: int | None) -> BatchInfo:
    queue = queues.ensure(transaction, name)
    batch = batches.ensure(transaction, queue, batch_name, after)
    if batch.state == "open":
        batches.set_state(transaction, batch, "running")
        transaction.run("stop_waiting_for_batch", {"batch_id": batch.batch_id})
        for member_queue in batches.queues_of(transaction, batch):
            promotion.promote_batch(transaction, member_queue, batch.batch_id)
        outcomes.end_batch_if_done(transaction, batch.batch_id)
    return batches.info(transaction, queue, batches.find(transaction, batch.batch_id))


def cancel(transaction: Transaction, name: str, batch_name: str, after: int | None) -> BatchInfo:
    queue = queues.get(transaction, name)
    batch = batches.get(transaction, queue, batch_name, after)
    if batch.state in ("open", "running"):
        batches.set_state(transaction, batch, "cancelling")
        _cancel_members(transaction, batch, f"batch {batch.name} was cancelled")
        outcomes.end_batch_if_done(transaction, batch.batch_id)
    return batches.info(transaction, queue, batches.find(transaction, batch.batch_id))


def abandon(transaction: Transaction, queue: StoredQueue) -> None:
    """Cancel the members that the queue's batches have in other queues; called before the queue is flushed."""
    for row in transaction.rows("abandon_batches", {"queue_id": queue.queue_id}):
        batch = StoredBatch(*row)
        _cancel_members(transaction, batch, f"batch {batch.name} was flushed with queue {queue.name}", queue.queue_id)


def _cancel_members(transaction: Transaction, batch: StoredBatch, reason: str, without: int | None = None) -> None:
    """Cancel the unleased members in all queues of the batch except `without`."""
    step = audit.AuditStep(Event.BATCH_CANCEL, State.CANCELLED, 0, 0, reason=reason)
    for queue in batches.queues_of(transaction, batch):
        if queue.queue_id == without:
            continue
        _cancel_held(transaction, queue, batch, step)
        # Read all groups before changing any: members leave the batch when the primary group is changed.
        for group, members in [
            (group, _unleased(transaction, queue, group, batch)) for group in queues.leasing_groups(transaction, queue)
        ]:
            _cancel_unleased(transaction, queue, group, members, step)


def _cancel_held(transaction: Transaction, queue: StoredQueue, batch: StoredBatch, step: audit.AuditStep) -> None:
    bindings = {"batch_id": batch.batch_id, "queue_id": queue.queue_id}
    held = [row[0] for row in transaction.rows("held_members", bindings)]
    promotion.withdraw(transaction, queue, held, step)


def _unleased(transaction: Transaction, queue: StoredQueue, group: Group, batch: StoredBatch) -> list[tuple[int, bool]]:
    bindings = {
        "group_id": group.group_id,
        "batch_id": batch.batch_id,
        "queue_id": queue.queue_id,
        "trimmed_position": queue.trimmed_position,
    }
    return [(position, bool(tracked)) for position, tracked in transaction.rows("cancellable_members", bindings)]


def _cancel_unleased(
    transaction: Transaction, queue: StoredQueue, group: Group, members: list[tuple[int, bool]], step: audit.AuditStep
) -> None:
    """End members that no consumer holds. Groups other than the primary one keep retries: the batch belongs to the
    primary group."""
    is_primary = group.name == queue.policy.primary_group
    for position, is_tracked in members:
        attempt = 0
        if not is_tracked:
            leases.skip(transaction, group, position)
        elif is_primary:
            attempt = leases.forget(transaction, group, position)
        else:
            continue
        ended = msgspec.structs.replace(step, first=position, last=position, attempt=attempt)
        outcomes.end(transaction, queue, group, ended, letter=is_primary)
