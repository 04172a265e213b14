"""Batches: starting, cancelling and ending them. Members are rows, so a crash cannot miscount them."""

from __future__ import annotations

from penstock.domain.errors import InvalidInput
from penstock.domain.lifecycle import Event, State
from penstock.domain.message import Draft, check_size
from penstock.domain.names import shown
from penstock.domain.observations import BatchInfo
from penstock.engines.sqlite import batches, ending, promoting, queues, tracking
from penstock.engines.sqlite.batches import SQL, Batch
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.transaction import Transaction


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
    joined = batches.opened(transaction, queue, batch, after)
    if end is not None:
        transaction.run(SQL.set_end_message, {"batch_id": joined.batch_id, "message": batches.encode_draft(end)})
    if abort is not None:
        transaction.run(SQL.set_abort_message, {"batch_id": joined.batch_id, "message": batches.encode_draft(abort)})
    return batches.info(transaction, queue, joined)


def start(transaction: Transaction, name: str, batch_name: str, after: int | None) -> BatchInfo:
    queue = queues.ensure(transaction, name)
    batch = batches.ensured(transaction, queue, batch_name, after)
    if batch.state == "open":
        batches.set_state(transaction, batch, "running")
        transaction.run(SQL.stop_waiting, {"batch_id": batch.batch_id})
        promoting.promote_batch(transaction, queue, batch.batch_id)
        ending.end_batch_if_done(transaction, queue, batch.batch_id)
    return batches.info(transaction, queue, batches.find(transaction, batch.batch_id))


def cancel(transaction: Transaction, name: str, batch_name: str, after: int | None) -> BatchInfo:
    queue = queues.get(transaction, name)
    batch = batches.get(transaction, queue, batch_name, after)
    if batch.state in ("open", "running"):
        batches.set_state(transaction, batch, "cancelling")
        step = ending.Step(Event.BATCH_CANCEL, State.CANCELLED, 0, 0, reason=f"batch {batch.name} was cancelled")
        _cancel_held(transaction, queue, batch, step)
        # All groups are looked at before any is changed: members leave the batch while the primary group is.
        for group, members in [
            (group, _unleased(transaction, queue, group, batch)) for group in _readers(transaction, queue)
        ]:
            _cancel_members(transaction, queue, group, members, step)
        ending.end_batch_if_done(transaction, queue, batch.batch_id)
    return batches.info(transaction, queue, batches.find(transaction, batch.batch_id))


def _cancel_held(transaction: Transaction, queue: Queue, batch: Batch, step: ending.Step) -> None:
    held = [row[0] for row in transaction.rows(SQL.held_members, {"batch_id": batch.batch_id})]
    promoting.withdraw(transaction, queue, held, step)


def _readers(transaction: Transaction, queue: Queue) -> list[Group]:
    return [group for group in queues.groups(transaction, queue) if group.stream_position is None]


def _unleased(transaction: Transaction, queue: Queue, group: Group, batch: Batch) -> list[tuple[int, bool]]:
    bindings = {
        "group_id": group.group_id,
        "batch_id": batch.batch_id,
        "trimmed_position": queue.trimmed_position,
    }
    return [(position, bool(tracked)) for position, tracked in transaction.rows(SQL.cancellable, bindings)]


def _cancel_members(
    transaction: Transaction, queue: Queue, group: Group, members: list[tuple[int, bool]], step: ending.Step
) -> None:
    """Another group than the primary keeps what it has begun to handle: a batch is not its own."""
    is_primary = group.name == queue.policy.primary_group
    for position, is_tracked in members:
        attempt = 0
        if not is_tracked:
            tracking.skip(transaction, group, position)
        elif is_primary:
            attempt = tracking.forget(transaction, group, position)
        else:
            continue
        ended = step._replace(first=position, last=position, attempt=attempt)
        ending.end(transaction, queue, group, ended, letter=is_primary)
