"""live -> an outcome: the one way a message ends in a group, and everything that follows from it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.domain.lifecycle import Event, State
from penstock.domain.names import shown
from penstock.engines.sqlite import batches, queues, sending
from penstock.engines.sqlite.batches import ENDED
from penstock.engines.sqlite.batches import SQL as BATCHES
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/ending.sql")
# Wider ranges are written in several rows, so that the trail of one message is found by looking at this many positions.
MAX_SPAN = 1024

# What is written down when time or an operator ended a message, and nobody gave a reason.
REASONS = {
    Event.EXPIRE: "expires_at passed",
    Event.DEADLINE: "deadline_at passed",
    Event.BATCH_CANCEL: "its batch was cancelled",
    Event.LEASE_END: "the lease ended",
    Event.RELEASE: "the lease ended before its turn came",
}


class Step(NamedTuple):
    """One step in the life of the messages from `first` to `last`."""

    event: Event
    state: State
    first: int
    last: int
    by: str | None = None
    reason: str | None = None
    attempt: int = 0
    token: int | None = None


def record(transaction: Transaction, queue_id: int, group_id: int | None, step: Step) -> None:
    for first in range(step.first, step.last + 1, MAX_SPAN):
        transaction.run(SQL.record, _entry(transaction, queue_id, group_id, step, first))


def record_all(transaction: Transaction, queue_id: int, group_id: int | None, steps: Iterable[Step]) -> None:
    """Steps in the order given, by one statement."""
    rows = [
        _entry(transaction, queue_id, group_id, step, first)
        for step in steps
        for first in range(step.first, step.last + 1, MAX_SPAN)
    ]
    transaction.run_many(SQL.record, rows)


def record_leases(
    transaction: Transaction, queue: Queue, group: Group, event: Event, state: State, token: int, first: int, last: int
) -> None:
    """The same step of all leases of a receive from `first` to `last`, which lie in a row and are no wider than an
    entry may be: written without looking at any of them."""
    bindings = {
        "last_entry": transaction.value(CONNECTION.last_entry),
        "queue_id": queue.queue_id,
        "group_id": group.group_id,
        "now": transaction.now,
        "event": event,
        "state": state,
        "token": token,
        "first": first,
        "last": last,
    }
    transaction.run(SQL.record_leases, bindings)


def _entry(
    transaction: Transaction, queue_id: int, group_id: int | None, step: Step, first: int
) -> tuple[int | str | None, ...]:
    event, state, _, last, by, reason, attempt, token = step
    last = min(last, first + MAX_SPAN - 1)
    return last, first, queue_id, group_id, transaction.now, event, state, by, reason, attempt, token


def end(transaction: Transaction, queue: Queue, group: Group, step: Step, letter: bool = True) -> None:
    """Messages end in one group. A group that only passed by leaves no dead letter."""
    record(transaction, queue.queue_id, group.group_id, step)
    _account(transaction, queue, group, step, letter)


def succeed(transaction: Transaction, queue: Queue, group: Group, steps: Sequence[Step]) -> None:
    """Messages that are owned by no address and no batch: their success is written down and counted, no more."""
    if len(steps) == 1:
        record(transaction, queue.queue_id, group.group_id, steps[0])
    else:
        record_all(transaction, queue.queue_id, group.group_id, steps)
    count = sum([step.last - step.first + 1 for step in steps])
    transaction.run(SQL.count_succeeded, {"group_id": group.group_id, "count": count})


def end_unread(transaction: Transaction, queue: Queue, step: Step) -> None:
    """A message that ends while it is held ends in every group alike; the dead letter lies in the primary one."""
    record(transaction, queue.queue_id, None, step)
    for group in queues.groups(transaction, queue):
        if group.stream_position is None:
            _account(transaction, queue, group, step, letter=group.name == queue.policy.primary_group)


def _account(transaction: Transaction, queue: Queue, group: Group, step: Step, letter: bool) -> None:
    """Count it; leave dead letters; in the primary group free addresses and, with the last member, end batches."""
    count = {"group_id": group.group_id, "count": step.last - step.first + 1}
    transaction.run(getattr(SQL, f"count_{step.state}"), count)
    ended = {"first": step.first, "last": step.last, "outcome": step.state.value, "reason": step.reason}
    if letter and step.state is not State.SUCCEEDED:
        buried = {**ended, "group_id": group.group_id, "attempts": step.attempt, "now": transaction.now}
        transaction.run(SQL.bury, buried)
        transaction.deaths.append(_death(queue, group, step))
    if group.name == queue.policy.primary_group:
        transaction.run(SQL.end_addresses, {**ended, "queue_id": queue.queue_id, "now": transaction.now})
        left = transaction.rows(BATCHES.leave_batch, {"first": step.first, "last": step.last})
        for (batch_id,) in set(left):
            end_batch_if_done(transaction, queue, batch_id)


def _death(queue: Queue, group: Group, step: Step) -> str:
    where = f"position {step.first}" if step.first == step.last else f"positions {step.first} to {step.last}"
    reason = f": {shown(step.reason, 200)}" if step.reason else ""
    return f"dead letter in queue {shown(queue.name)}, group {shown(group.name)}, {where}, {step.state}{reason}"


def end_batch_if_done(transaction: Transaction, queue: Queue, batch_id: int) -> None:
    """Send the end or the abort message with the last member's ending: in the same transaction, so exactly once."""
    batch = batches.find(transaction, batch_id)
    if batch.state in ("open", *ENDED) or transaction.value(BATCHES.any_remaining, {"batch_id": batch_id}):
        return
    finished = batch.state == "running"
    batches.set_state(transaction, batch, "finished" if finished else "cancelled")
    message = batch.end_message if finished else batch.abort_message
    if message is not None:
        sending.put(transaction, queue, [batches.decode_draft(message)])
