"""Queues and groups: finding, making, declaring and flushing them."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from penstock.domain.errors import GroupMisused, InvalidInput, InvalidPolicy, NotFound
from penstock.domain.names import nearest, shown
from penstock.domain.observations import QueueInfo
from penstock.domain.policy import Policy
from penstock.domain.times import to_time
from penstock.engines.sqlite import marks
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/queues.sql")
# Queues, groups and policies are few and change seldom; what the row says is the key, so a change is seen at once.
REMEMBERED = 1024
_decode_policy = lru_cache(REMEMBERED)(msgspec.json.Decoder(Policy).decode)


class Queue(NamedTuple):
    queue_id: int
    name: str
    policy: Policy
    held: int
    trimmed_position: int
    created_at: int
    primary_group_id: int | None


class Group(NamedTuple):
    group_id: int
    queue_id: int
    name: str
    stream_position: int | None
    used_at: int
    stream_table: str


def find(transaction: Transaction, name: str) -> Queue | None:
    row = transaction.row(SQL.find_queue, (name,))
    return None if row is None else from_row(row)


def find_reader(transaction: Transaction, name: str, group: str | None) -> tuple[Queue | None, Group | None]:
    """A queue and one of its groups, as far as they are there; no group name means the primary one."""
    row = transaction.row(SQL.find_reader, (name, group))
    if row is None:
        return None, None
    return from_row(row[:7]), None if row[7] is None else group_from_row(row[7:])


def get(transaction: Transaction, name: str) -> Queue:
    queue = find(transaction, name)
    if queue is None:
        known = [row[1] for row in transaction.rows(SQL.all_queues)]
        raise NotFound(f"there is no queue {shown(name)}{nearest(name, known)}")
    return queue


def ensure(transaction: Transaction, name: str) -> Queue:
    """A queue is made by its first use."""
    queue = find(transaction, name)
    if queue is not None:
        return queue
    policy = Policy()
    queue_id = transaction.value(SQL.make_queue, {"name": name, "policy": "{}", "now": transaction.now})
    return Queue(queue_id, name, policy, 0, 0, transaction.now, None)


def every(transaction: Transaction) -> list[Queue]:
    return [from_row(row) for row in transaction.rows(SQL.all_queues)]


def declare(transaction: Transaction, name: str, changes: dict[str, Any]) -> Policy:
    queue = ensure(transaction, name)
    policy = msgspec.structs.replace(queue.policy, **changes)
    if policy == queue.policy:
        return policy
    if policy.shards != queue.policy.shards and (policy.ordered or queue.policy.ordered):
        _check_drained(transaction, queue, policy)
    if policy.delivery != queue.policy.delivery:
        look_back(transaction, queue.queue_id, None, 0)
    encoded = msgspec.json.encode(policy).decode()
    bindings = {"queue_id": queue.queue_id, "policy": encoded, "primary_group": policy.primary_group}
    transaction.run(SQL.set_policy, bindings)
    return policy


def look_back(transaction: Transaction, queue_id: int, group_id: int | None, since: int) -> None:
    transaction.run(SQL.look_back, {"queue_id": queue_id, "group_id": group_id, "since": since})


def _check_drained(transaction: Transaction, queue: Queue, policy: Policy) -> None:
    """Another number of shards sends a key elsewhere: what waits in its old shard could be overtaken."""
    if transaction.value(SQL.live_messages, {"queue_id": queue.queue_id}):
        raise InvalidPolicy(
            f"shards of the ordered queue {queue.name!r} cannot change from {queue.policy.shards} to {policy.shards} "
            "while it has live messages: drain or flush it first"
        )


def info(transaction: Transaction, queue: Queue) -> QueueInfo:
    names = tuple(group.name for group in groups(transaction, queue))
    return QueueInfo(queue.name, queue.policy, names, to_time(queue.created_at))


def find_group(transaction: Transaction, queue: Queue, name: str) -> Group | None:
    row = transaction.row(SQL.find_group, {"queue_id": queue.queue_id, "name": name})
    return None if row is None else Group(*row)


def get_group(transaction: Transaction, queue: Queue, name: str) -> Group:
    group = find_group(transaction, queue, name)
    if group is None:
        known = [group.name for group in groups(transaction, queue)]
        raise NotFound(f"queue {queue.name!r} has no group {shown(name)}{nearest(name, known)}")
    return group


def ensure_group(transaction: Transaction, queue: Queue, name: str) -> Group:
    """A group exists from its first use."""
    row = transaction.row(SQL.find_group, {"queue_id": queue.queue_id, "name": name})
    return _make_group(transaction, queue, name) if row is None else Group(*row)


def _make_group(transaction: Transaction, queue: Queue, name: str) -> Group:
    bindings = {"queue_id": queue.queue_id, "name": name, "now": transaction.now}
    group = Group(*transaction.rows(SQL.make_group, bindings)[0])
    transaction.run(SQL.count_withdrawn, {"queue_id": queue.queue_id, "group_id": group.group_id})
    return group


def ensure_leasing_group(transaction: Transaction, queue: Queue, name: str) -> Group:
    group = ensure_group(transaction, queue, name)
    check_leasing(queue, group)
    return group


def check_leasing(queue: Queue, group: Group) -> None:
    if group.stream_position is not None:
        raise GroupMisused(
            f"group {group.name!r} of queue {queue.name!r} is read as a stream: receive with another group"
        )


def primary(transaction: Transaction, queue: Queue) -> Group | None:
    """The group that addresses, batches and unread dead letters follow; it exists from the first send."""
    name = queue.policy.primary_group
    return None if name is None else ensure_group(transaction, queue, name)


def ensure_primary(transaction: Transaction, queue: Queue) -> None:
    """The primary group exists from the first send, so that nothing sent can be trimmed before it has read it."""
    if queue.primary_group_id is None:
        group = primary(transaction, queue)
        if group is not None:
            transaction.run(SQL.set_primary, {"queue_id": queue.queue_id, "group_id": group.group_id})


def groups(transaction: Transaction, queue: Queue) -> list[Group]:
    return [Group(*row) for row in transaction.rows(SQL.all_groups, {"queue_id": queue.queue_id})]


def forget(transaction: Transaction, name: str, group_name: str) -> bool:
    queue = find(transaction, name)
    group = None if queue is None else find_group(transaction, queue, group_name)
    if queue is None or group is None:
        return False
    if group_name == queue.policy.primary_group:
        raise InvalidInput(f"group {group_name!r} is the primary one of queue {name!r}: it cannot be removed")
    transaction.run(CONNECTION.keep_entry)
    transaction.run(SQL.forget_trail, {"group_id": group.group_id})
    for statement in _FORGET:
        transaction.run(statement, {"group_id": group.group_id})
    return True


def flush(transaction: Transaction, name: str) -> int:
    queue = find(transaction, name)
    if queue is None:
        return 0
    bindings = {"queue_id": queue.queue_id}
    count: int = transaction.value(SQL.flush_counts, bindings)
    ends = {
        **bindings,
        "last_position": transaction.value(CONNECTION.last_position),
        "last_entry": transaction.value(CONNECTION.last_entry),
    }
    marks.keep_last(transaction, queue, ends["last_position"])
    marks.keep_last_entry(transaction, queue)
    transaction.run(CONNECTION.keep_position)
    transaction.run(CONNECTION.keep_entry)
    for statement in _FLUSH:
        transaction.run(statement, bindings)
    transaction.run(SQL.flush_groups, ends)
    transaction.run(SQL.flush_queue, ends)
    return count


# In this order: what is found through lanes and groups goes before them.
_FLUSH = (
    SQL.flush_log,
    SQL.flush_dead_log,
    SQL.flush_runs,
    SQL.flush_cursors,
    SQL.flush_leases,
    SQL.flush_tracked,
    SQL.flush_skips,
    SQL.flush_dead_letters,
    SQL.flush_members,
    SQL.flush_held,
    SQL.flush_identities,
    SQL.flush_audit,
    SQL.flush_removed,
    SQL.flush_addresses,
    SQL.flush_batches,
    SQL.flush_marks,
    SQL.flush_lanes,
)


_FORGET = (
    SQL.forget_cursors,
    SQL.forget_leases,
    SQL.forget_tracked,
    SQL.forget_skips,
    SQL.forget_dead_letters,
    SQL.forget_consumers,
    SQL.forget_audit,
    SQL.forget_group,
)


@lru_cache(REMEMBERED)
def from_row(row: tuple[Any, ...]) -> Queue:
    queue_id, name, policy, *rest = row
    return Queue(queue_id, name, _decode_policy(policy), *rest)


@lru_cache(REMEMBERED)
def group_from_row(row: tuple[Any, ...]) -> Group:
    return Group(*row)
