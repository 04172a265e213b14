"""live -> an outcome: how a message ends in a group, and what follows from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from penstock.domain.lifecycle import State
from penstock.domain.message import named_after
from penstock.domain.validation import shown
from penstock.engines.positional import audit, batches, messages, queues
from penstock.engines.positional.batches import ENDED
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def end(transaction: Transaction, queue: StoredQueue, group: Group, step: audit.AuditStep, letter: bool = True) -> None:
    """End messages in one group. Without `letter` there is no dead letter, for a group that only skipped them."""
    audit.record(transaction, queue.queue_id, group.group_id, step)
    _account(transaction, queue, group, step, letter)


def succeed(transaction: Transaction, queue: StoredQueue, group: Group, steps: Sequence[audit.AuditStep]) -> None:
    """End messages without address or batch successfully: record and count them."""
    if len(steps) == 1:
        audit.record(transaction, queue.queue_id, group.group_id, steps[0])
    else:
        audit.record_all(transaction, queue.queue_id, group.group_id, steps)
    count = sum([step.last - step.first + 1 for step in steps])
    transaction.run("count_succeeded", {"group_id": group.group_id, "count": count})


def end_unread(transaction: Transaction, queue: StoredQueue, step: audit.AuditStep) -> None:
    """End a held message in every group; the dead letter belongs to the primary group."""
    audit.record(transaction, queue.queue_id, None, step)
    for group in queues.leasing_groups(transaction, queue):
        _account(transaction, queue, group, step, letter=group.name == queue.policy.primary_group)


def _account(transaction: Transaction, queue: StoredQueue, group: Group, step: audit.AuditStep, letter: bool) -> None:
    """Count the outcome and insert dead letters; in the primary group free addresses and end batches with their last
    member."""
    count = {"group_id": group.group_id, "count": step.last - step.first + 1}
    transaction.run(f"count_{step.state}", count)
    ended = {"first": step.first, "last": step.last, "outcome": step.state, "reason": step.reason}
    if letter and step.state is not State.SUCCEEDED:
        letter_row = {**ended, "group_id": group.group_id, "attempts": step.attempt, "now": transaction.now}
        transaction.run("insert_dead_letters", letter_row)
        transaction.deaths.append(_death(queue, group, step))
    if group.name == queue.policy.primary_group:
        transaction.run("end_addresses", {**ended, "queue_id": queue.queue_id, "now": transaction.now})
        left = transaction.rows("leave_batch", {"first": step.first, "last": step.last})
        for (batch_id,), members in Counter(left).items():
            if step.state is State.CANCELLED:
                transaction.run("count_cancelled_members", {"batch_id": batch_id, "count": members})
            end_batch_if_done(transaction, batch_id)


def _death(queue: StoredQueue, group: Group, step: audit.AuditStep) -> str:
    where = f"position {step.first}" if step.first == step.last else f"positions {step.first} to {step.last}"
    reason = f": {shown(step.reason, 200)}" if step.reason else ""
    return f"dead letter in queue {shown(queue.name)}, group {shown(group.name)}, {where}, {step.state}{reason}"


def end_batch_if_done(transaction: Transaction, batch_id: int) -> None:
    """End the batch with its last member: send the end or abort message to the batch's queue, in the same transaction,
    so exactly once."""
    batch = batches.find(transaction, batch_id)
    if batch.state in ("open", *ENDED) or transaction.value("any_remaining_member", {"batch_id": batch_id}):
        return
    finished = batch.state == "running"
    batches.set_state(transaction, batch, "finished" if finished else "cancelled")
    message = batch.end_message if finished else batch.abort_message
    if message is not None:
        owner = queues.by_id(transaction, batch.queue_id)
        messages.put(transaction, owner, [named_after(batch.name, batches.decode_draft(message))])
