"""Queues and groups: lookup, creation and policy."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from penstock.domain import refusals
from penstock.domain.policy import Policy
from penstock.domain.results import QueueInfo
from penstock.domain.timestamps import to_time
from penstock.engines.positional.database import Transaction

# The id of a group that does not exist yet: it has read nothing.
NO_GROUP = -1
# Queues, groups and policies are few and rarely change. The row itself is the cache key, so a change is seen at once.
REMEMBERED = 1024
_decode_policy = lru_cache(REMEMBERED)(msgspec.json.Decoder(Policy).decode)


class StoredQueue(NamedTuple):
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


def find(transaction: Transaction, name: str) -> StoredQueue | None:
    row = transaction.row("find_queue", (name,))
    return None if row is None else from_row(row)


def find_reader(transaction: Transaction, name: str, group: str | None) -> tuple[StoredQueue | None, Group | None]:
    """A queue and one of its groups, None where they do not exist; no group name means the primary one."""
    row = transaction.row("find_reader", (name, group))
    if row is None:
        return None, None
    return from_row(row[:7]), None if row[7] is None else group_from_row(row[7:])


def by_id(transaction: Transaction, queue_id: int) -> StoredQueue:
    row = transaction.row("queue_by_id", {"queue_id": queue_id})
    assert row is not None
    return from_row(row)


def get(transaction: Transaction, name: str) -> StoredQueue:
    queue = find(transaction, name)
    if queue is None:
        known = [row[1] for row in transaction.rows("all_queues")]
        raise refusals.no_queue(name, known)
    return queue


def ensure(transaction: Transaction, name: str) -> StoredQueue:
    """Find the queue, or create it on first use."""
    queue = find(transaction, name)
    if queue is not None:
        return queue
    transaction.run("make_queue", {"name": name, "policy": "{}", "now": transaction.now})
    made = find(transaction, name)
    assert made is not None
    return made


def every(transaction: Transaction) -> list[StoredQueue]:
    return [from_row(row) for row in transaction.rows("all_queues")]


def declare(transaction: Transaction, name: str, changes: dict[str, Any]) -> Policy:
    queue = ensure(transaction, name)
    policy = msgspec.structs.replace(queue.policy, **changes)
    if policy == queue.policy:
        return policy
    if policy.shards != queue.policy.shards and (policy.ordered or queue.policy.ordered):
        _check_drained(transaction, queue, policy)
    if policy.delivery != queue.policy.delivery:
        recheck_expiry(transaction, queue.queue_id, None, 0)
    encoded = msgspec.json.encode(policy).decode()
    bindings = {"queue_id": queue.queue_id, "policy": encoded, "primary_group": policy.primary_group}
    transaction.run("set_policy", bindings)
    if policy.primary_group != queue.policy.primary_group:
        former = {"queue_id": queue.queue_id, "name": queue.policy.primary_group}
        transaction.run("drop_unused_group", former)
    return policy


def recheck_expiry(transaction: Transaction, queue_id: int, group_id: int | None, since: int) -> None:
    transaction.run("recheck_expiry", {"queue_id": queue_id, "group_id": group_id, "since": since})


def _check_drained(transaction: Transaction, queue: StoredQueue, policy: Policy) -> None:
    """Refuse to change the shards of an ordered queue with live messages: a key would move to another shard and
    overtake them."""
    if transaction.value("live_messages", {"queue_id": queue.queue_id}):
        raise refusals.shards_in_use(queue.name, queue.policy.shards, policy.shards)


def info(transaction: Transaction, queue: StoredQueue) -> QueueInfo:
    names = tuple(group.name for group in groups(transaction, queue))
    return QueueInfo(queue.name, queue.policy, names, to_time(queue.created_at))


def find_group(transaction: Transaction, queue: StoredQueue, name: str) -> Group | None:
    row = transaction.row("find_group", {"queue_id": queue.queue_id, "name": name})
    return None if row is None else Group(*row)


def get_group(transaction: Transaction, queue: StoredQueue, name: str) -> Group:
    group = find_group(transaction, queue, name)
    if group is None:
        known = [group.name for group in groups(transaction, queue)]
        raise refusals.no_group(queue.name, name, known)
    return group


def ensure_group(transaction: Transaction, queue: StoredQueue, name: str) -> Group:
    """Find the group, or create it on first use."""
    row = transaction.row("find_group", {"queue_id": queue.queue_id, "name": name})
    return _make_group(transaction, queue, name) if row is None else Group(*row)


def _make_group(transaction: Transaction, queue: StoredQueue, name: str) -> Group:
    bindings = {"queue_id": queue.queue_id, "name": name, "now": transaction.now}
    group = Group(*transaction.rows("make_group", bindings)[0])
    transaction.run("count_withdrawn", {"queue_id": queue.queue_id, "group_id": group.group_id})
    return group


def ensure_leasing_group(transaction: Transaction, queue: StoredQueue, name: str) -> Group:
    group = ensure_group(transaction, queue, name)
    check_leasing(queue, group)
    return group


def check_leasing(queue: StoredQueue, group: Group) -> None:
    if group.stream_position is not None:
        raise refusals.stream_group(queue.name, group.name)


def ensure_primary(transaction: Transaction, queue: StoredQueue) -> None:
    """Create the primary group with the first send, so that nothing is trimmed before it has read it."""
    name = queue.policy.primary_group
    if queue.primary_group_id is None and name is not None:
        group = ensure_group(transaction, queue, name)
        transaction.run("set_primary", {"queue_id": queue.queue_id, "group_id": group.group_id})


def groups(transaction: Transaction, queue: StoredQueue) -> list[Group]:
    return [Group(*row) for row in transaction.rows("all_groups", {"queue_id": queue.queue_id})]


def leasing_groups(transaction: Transaction, queue: StoredQueue) -> list[Group]:
    """Groups that receive with leases, unlike stream groups."""
    return [group for group in groups(transaction, queue) if group.stream_position is None]


def forget(transaction: Transaction, name: str, group_name: str) -> bool:
    queue = find(transaction, name)
    group = None if queue is None else find_group(transaction, queue, group_name)
    if queue is None or group is None:
        return False
    if group_name == queue.policy.primary_group:
        raise refusals.primary_group(name, group_name)
    transaction.run("keep_entry")
    transaction.run("forget_trail", {"group_id": group.group_id})
    for statement in FORGET:
        transaction.run(statement, {"group_id": group.group_id})
    return True


FORGET = (
    "forget_cursors",
    "forget_leases",
    "forget_tracked",
    "forget_skips",
    "forget_dead_letters",
    "forget_consumers",
    "forget_removed_consumers",
    "forget_audit",
    "forget_group",
)


@lru_cache(REMEMBERED)
def from_row(row: tuple[Any, ...]) -> StoredQueue:
    queue_id, name, policy, *rest = row
    return StoredQueue(queue_id, name, _decode_policy(policy), *rest)


@lru_cache(REMEMBERED)
def group_from_row(row: tuple[Any, ...]) -> Group:
    return Group(*row)
