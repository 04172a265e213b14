"""Any message -> ready in a group, out of its turn, because somebody insists on having it: unread or passed by, waiting
for a retry, or ended."""

from __future__ import annotations

from penstock.domain.lifecycle import OUTCOMES, Event, State
from penstock.engines.sqlite import ending, looking, promoting, seeking, tracking
from penstock.engines.sqlite.ending import Step
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/force.sql")


def make_ready(transaction: Transaction, queue: Queue, group: Group, position: int) -> bool:
    """Whether it can be received now; not when it is over or in flight."""
    at = {"group_id": group.group_id, "position": position, "now": transaction.now}
    tracked = transaction.row(tracking.SQL.find_tracked, at)
    if tracked is not None:
        return _hurry(transaction, queue, group, position, state=tracked[3], attempt=tracked[4])
    message = transaction.row(SQL.message_at, {**at, "trimmed_position": queue.trimmed_position})
    if message is None or transaction.value(looking.SQL.lease_over, at) is not None:
        return False
    lane_id, priority, expires_at, deadline_at, batch_id, is_unread = message
    last = looking.last_entry(transaction, queue, group, position)
    if last is not None and last.state in OUTCOMES:
        _bring_back(transaction, queue, group, position, last.state)
    if is_unread:
        transaction.run(SQL.skip, at)
    row = {
        "group_id": group.group_id, "position": position, "lane_id": lane_id, "priority": priority,
        "state": State.READY.value, "attempt": 0, "until_at": 0, "expires_at": expires_at, "deadline_at": deadline_at,
        "batch_id": batch_id, "token": None, "consumer": None, "reason": None,
    }  # fmt: skip
    transaction.run(tracking.SQL.track, row)
    return True


def _hurry(transaction: Transaction, queue: Queue, group: Group, position: int, state: str, attempt: int) -> bool:
    if state == State.HELD:
        transaction.run(promoting.SQL.make_ready, {"group_id": group.group_id, "position": position})
        step = Step(Event.DUE, State.READY, position, position, "system", None, attempt)
        ending.record(transaction, queue.queue_id, group.group_id, step)
    return state != State.LEASED


def _bring_back(transaction: Transaction, queue: Queue, group: Group, position: int, outcome: State) -> None:
    """As when the group is moved back before it: it has not ended any more."""
    step = Step(Event.SEEK, State.READY, position, position, "system", "claimed by force")
    ending.record(transaction, queue.queue_id, group.group_id, step)
    counts = dict.fromkeys((str(one) for one in OUTCOMES), 0) | {str(outcome): 1}
    transaction.run(seeking.SQL.uncount, {"group_id": group.group_id, **counts})
    transaction.run(seeking.SQL.dig_up, {"group_id": group.group_id, "first": position, "last": position})
