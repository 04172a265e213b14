"""Addresses: at most one live message each, and how the newest one ended."""

from __future__ import annotations

from penstock.domain.lifecycle import OUTCOMES, State
from penstock.domain.results import AddressState
from penstock.engines.positional import audit, inspection, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue


def take_address(transaction: Transaction, queue_id: int, address: str, message_id: str, position: int | None) -> None:
    bindings = {"queue_id": queue_id, "address": address, "id": message_id, "position": position}
    transaction.run("take_address", bindings)


def live_at(transaction: Transaction, queue: StoredQueue, address: str) -> str | None:
    """The live message of an address; one that has expired does not count, even before a sweep records it."""
    row = transaction.row("find_address", {"queue_id": queue.queue_id, "address": address})
    if row is None or row[2] is not None:
        return None
    message_id: str = row[0]
    holder = {"queue_id": queue.queue_id, "id": message_id, "position": row[1], "now": transaction.now}
    primary = queues.find_group(transaction, queue, queue.policy.primary_group or "")
    holder["group_id"] = None if primary is None else primary.group_id
    return None if transaction.value("is_holder_expired", holder) else message_id


def address(transaction: Transaction, name: str, wanted: str) -> AddressState | None:
    queue = queues.find(transaction, name)
    if queue is None:
        return None
    row = transaction.row("find_address", {"queue_id": queue.queue_id, "address": wanted})
    if row is None:
        return None
    message_id, position, outcome, reason = row
    if outcome is None:
        return AddressState(message_id, None, reason)
    return AddressState(message_id, State(outcome), reason, _code(transaction, queue, State(outcome), position))


def is_live(transaction: Transaction, name: str, wanted: str) -> bool:
    queue = queues.find(transaction, name)
    return queue is not None and live_at(transaction, queue, wanted) is not None


def ended(transaction: Transaction, name: str, message_id: str) -> AddressState | None:
    queue = queues.get(transaction, name)
    found = inspection.place(transaction, queue, message_id)
    group = _primary(transaction, queue)
    if found.position is None or group is None:
        return None
    last = audit.last_entry(transaction, queue, group, found.position)
    if last is None or last.state not in OUTCOMES:
        return None
    return AddressState(message_id, last.state, last.reason, _code(transaction, queue, last.state, found.position))


def _primary(transaction: Transaction, queue: StoredQueue) -> Group | None:
    name = queue.policy.primary_group
    return None if name is None else queues.find_group(transaction, queue, name)


def _code(transaction: Transaction, queue: StoredQueue, outcome: State, position: int | None) -> str | None:
    """The error code of a message that ended in the primary group; only a failed or rejected one can have a code."""
    group = _primary(transaction, queue)
    if group is None or outcome not in (State.FAILED, State.REJECTED):
        return None
    code: str | None = transaction.value("last_code", {"position": position, "group_id": group.group_id})
    return code
