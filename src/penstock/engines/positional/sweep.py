"""The maintenance pass: what time does to messages, queue by queue, in short transactions."""

from __future__ import annotations

from contextlib import suppress

from penstock.domain import reasons
from penstock.domain.lifecycle import Event, State
from penstock.domain.results import SweepReport
from penstock.domain.timestamps import SECOND, microseconds
from penstock.engines.positional import (
    audit,
    consumers,
    lapsed_leases,
    leases,
    marks,
    outcomes,
    promotion,
    queues,
    retention,
    schedules,
)
from penstock.engines.positional.database import PositionalDatabase, QueueHeld, Transaction, Wakeup
from penstock.engines.positional.queues import Group, StoredQueue
from penstock.engines.positional.sweep_plan import SweepPlan, calls

LOOK_BACK = 60 * SECOND
# The fact that holds the time of the last claimed sweep.
SWEPT_AT = "swept_at"


def sweep(database: PositionalDatabase, plan: SweepPlan) -> SweepReport:
    with database.read() as transaction:
        due = calls(transaction)
    removed = fired = 0
    for group_id, queue in due.groups:
        with suppress(QueueHeld), database.write(queue, patient=False) as transaction:
            removed += consumers.remove_missing(transaction, group_id)
    for schedule in due.schedules:
        with suppress(QueueHeld), database.write(patient=False) as transaction:
            fired += schedules.fire(transaction, schedule)
    with database.read() as transaction:
        wanted = plan.to_visit(transaction)
        is_behind = marks.is_behind(transaction)
    if is_behind:
        with database.write() as transaction:
            marks.note_audit_ends(transaction)
    counts = {"reclaimed": 0, "promoted": 0, "expired": 0, "trimmed": 0, "purged": 0}
    swept: set[int] = set()
    for queue_id, name in wanted:
        # A queue that another transaction has is left to the next sweep: the others do not wait for it.
        with suppress(QueueHeld):
            for count, number in _sweep_queue(database, name).items():
                counts[count] += number
            swept.add(queue_id)
    if swept:
        with database.read() as transaction:
            plan.visited(transaction, swept)
    return SweepReport(fired=fired, removed_consumers=removed, **counts)


def claim(database: PositionalDatabase, wakeup: Wakeup, every_seconds: float) -> bool:
    """Asking takes no write lock. The claim need not be durable, because sweeping twice is harmless, and wakes nobody,
    because it makes nothing ready."""
    with database.read() as transaction:
        if not _is_due(transaction, every_seconds):
            return False
    with wakeup.silent_write() as transaction:
        is_due = _is_due(transaction, every_seconds)
        if is_due:
            transaction.run("set_fact", {"name": SWEPT_AT, "value": transaction.now})
        return is_due


def _is_due(transaction: Transaction, every_seconds: float) -> bool:
    swept_at: int | None = transaction.value("fact", {"name": SWEPT_AT})
    # A clock that was set back must not stop sweeps until it has caught up.
    return swept_at is None or not 0 <= transaction.now - swept_at < microseconds(every_seconds)


def _sweep_queue(database: PositionalDatabase, name: str) -> dict[str, int]:
    counts = {"promoted": 0, "reclaimed": 0, "expired": 0}
    while True:
        with database.write(name, patient=False) as transaction:
            queue = queues.ensure(transaction, name)
            promoted = promotion.promote(transaction, queue)
        counts["promoted"] += promoted
        if promoted < promotion.AT_ONCE:
            break
    with database.write(name, patient=False) as transaction:
        queue = queues.ensure(transaction, name)
        counts["expired"] += _expire_held(transaction, queue)
        for group in queues.leasing_groups(transaction, queue):
            counts["promoted"] += promotion.make_ready(transaction, queue, group)
            counts["reclaimed"] += lapsed_leases.reclaim(transaction, queue, group)
            counts["expired"] += lapsed_leases.expire_tracked(transaction, queue, group)
            counts["expired"] += _expire_unread(transaction, queue, group)
    with database.write(name, patient=False) as transaction:
        queue = queues.ensure(transaction, name)
        counts["purged"] = retention.purge(transaction, queue)
        if counts["purged"]:
            retention.trim_kept(transaction, queue)
    has_more, counts["trimmed"] = True, 0
    while has_more:
        with database.write(name, patient=False) as transaction:
            trimmed, has_more = retention.trim(transaction, queues.ensure(transaction, name))
        counts["trimmed"] += trimmed
    return counts


def _expire_held(transaction: Transaction, queue: StoredQueue) -> int:
    bindings = {"queue_id": queue.queue_id, "now": transaction.now}
    over = transaction.rows("expired_held", bindings)
    if queue.policy.at_most_once:
        over += transaction.rows("overdue_held", bindings)
    # In the order of sending, whatever ended them.
    for held_id, name in sorted(over):
        promotion.withdraw(transaction, queue, [held_id], _step(Event(name), 0))
    return len(over)


def _expire_unread(transaction: Transaction, queue: StoredQueue, group: Group) -> int:
    since: int = transaction.value("expired_upto", {"group_id": group.group_id})
    bindings = {
        "queue_id": queue.queue_id,
        "group_id": group.group_id,
        "trimmed_position": queue.trimmed_position,
        "since": since,
        "now": transaction.now,
    }
    over: dict[int, str] = dict(transaction.rows("overdue_unread", bindings)) if queue.policy.at_most_once else {}
    over.update(transaction.rows("expired_unread", bindings))
    for position, name in sorted(over.items()):
        leases.skip(transaction, group, position)
        is_primary = group.name == queue.policy.primary_group
        outcomes.end(transaction, queue, group, _step(Event(name), position), letter=is_primary)
    if over or transaction.now - since > LOOK_BACK:
        transaction.run("set_expired_upto", {"group_id": group.group_id, "now": transaction.now})
    return len(over)


def _step(event: Event, position: int) -> audit.AuditStep:
    return audit.AuditStep(event, State.EXPIRED, position, position, "system", reasons.OF_EVENT[event])
