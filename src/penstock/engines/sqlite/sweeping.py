"""The maintenance pass: everything that time does to messages, queue by queue, each in a transaction of its own so
that nobody waits long."""

from __future__ import annotations

from penstock.domain.lifecycle import Event, State
from penstock.domain.observations import SweepReport
from penstock.domain.times import SECOND, microseconds
from penstock.engines.sqlite import (
    consumers,
    ending,
    marks,
    promoting,
    queues,
    reclaiming,
    scheduling,
    tracking,
    trimming,
)
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.connection import Database
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.rounds import Rounds, has_calls
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.sqlite.trimming import SQL
from penstock.engines.sqlite.watching import FileWatch

LOOK_BACK = 60 * SECOND
# The fact of the store that says when somebody last set out to sweep.
SWEPT_AT = "swept_at"


def sweep(database: Database, rounds: Rounds) -> SweepReport:
    with database.read() as transaction:
        is_called = has_calls(transaction)
    removed = fired = 0
    if is_called:
        with database.write() as transaction:
            removed = consumers.remove_missing(transaction)
            fired = scheduling.fire(transaction)
    with database.read() as transaction:
        wanted = rounds.to_visit(transaction)
        is_behind = marks.is_behind(transaction)
    if is_behind:
        with database.write() as transaction:
            marks.note_trails(transaction)
    counts = {"reclaimed": 0, "promoted": 0, "expired": 0, "trimmed": 0, "purged": 0}
    for _, name in wanted:
        for count, number in _sweep_queue(database, name).items():
            counts[count] += number
    if wanted:
        with database.read() as transaction:
            rounds.visited(transaction, {queue_id for queue_id, _ in wanted})
    return SweepReport(fired=fired, removed_consumers=removed, **counts)


def claim(database: Database, watch: FileWatch, every_seconds: float) -> bool:
    """Asking takes no write lock; claiming need not wait for the disk, because sweeping twice does no harm. Nobody who
    waits is told, because it makes nothing ready."""
    with database.read() as transaction:
        if not _is_due(transaction, every_seconds):
            return False
    with watch.unheard() as transaction:
        is_due = _is_due(transaction, every_seconds)
        if is_due:
            transaction.run(CONNECTION.set_fact, {"name": SWEPT_AT, "value": transaction.now})
        return is_due


def _is_due(transaction: Transaction, every_seconds: float) -> bool:
    swept_at: int | None = transaction.value(CONNECTION.fact, {"name": SWEPT_AT})
    # A clock that was set back must not stop the sweeps until it has caught up.
    return swept_at is None or not 0 <= transaction.now - swept_at < microseconds(every_seconds)


def _sweep_queue(database: Database, name: str) -> dict[str, int]:
    counts = {"promoted": 0, "reclaimed": 0, "expired": 0}
    while True:
        with database.write() as transaction:
            queue = queues.ensure(transaction, name)
            promoted = promoting.promote(transaction, queue)
        counts["promoted"] += promoted
        if promoted < promoting.AT_ONCE:
            break
    with database.write() as transaction:
        queue = queues.ensure(transaction, name)
        counts["expired"] += _expire_held(transaction, queue)
        for group in queues.groups(transaction, queue):
            if group.stream_position is None:
                counts["promoted"] += promoting.make_ready(transaction, queue, group)
                counts["reclaimed"] += reclaiming.reclaim(transaction, queue, group)
                counts["expired"] += reclaiming.expire_tracked(transaction, queue, group)
                counts["expired"] += _expire_unread(transaction, queue, group)
    with database.write() as transaction:
        queue = queues.ensure(transaction, name)
        counts["purged"] = trimming.purge(transaction, queue)
        if counts["purged"]:
            trimming.trim_kept(transaction, queue)
    has_more, counts["trimmed"] = True, 0
    while has_more:
        with database.write() as transaction:
            trimmed, has_more = trimming.trim(transaction, queues.ensure(transaction, name))
        counts["trimmed"] += trimmed
    return counts


def _expire_held(transaction: Transaction, queue: Queue) -> int:
    bindings = {"queue_id": queue.queue_id, "now": transaction.now}
    over = transaction.rows(SQL.expired_held, bindings)
    if queue.policy.at_most_once:
        over += transaction.rows(SQL.overdue_held, bindings)
    # In the order of the sends, whatever ended them.
    for held_id, name in sorted(over):
        promoting.withdraw(transaction, queue, [held_id], _step(Event(name), 0))
    return len(over)


def _expire_unread(transaction: Transaction, queue: Queue, group: Group) -> int:
    since: int = transaction.value(SQL.expired_upto, {"group_id": group.group_id})
    bindings = {
        "queue_id": queue.queue_id,
        "group_id": group.group_id,
        "trimmed_position": queue.trimmed_position,
        "since": since,
        "now": transaction.now,
    }
    over = dict(transaction.rows(SQL.overdue_unread, bindings)) if queue.policy.at_most_once else {}
    over.update(transaction.rows(SQL.expired_unread, bindings))
    for position, name in sorted(over.items()):
        tracking.skip(transaction, group, position)
        is_primary = group.name == queue.policy.primary_group
        ending.end(transaction, queue, group, _step(Event(name), position), letter=is_primary)
    if over or transaction.now - since > LOOK_BACK:
        transaction.run(SQL.set_expired_upto, {"group_id": group.group_id, "now": transaction.now})
    return len(over)


def _step(event: Event, position: int) -> ending.Step:
    return ending.Step(event, State.EXPIRED, position, position, "system", ending.REASONS[event])
