"""Dead letters: messages that ended in a group without success. dead -> ready by a redrive, deleted by a purge."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.domain import reasons
from penstock.domain.identity import made_id
from penstock.domain.lifecycle import Event, State
from penstock.domain.message import BYTES, decode_headers
from penstock.domain.results import DeadLetter
from penstock.domain.settlement import Decision
from penstock.domain.timestamps import to_time
from penstock.engines.contract import Edge
from penstock.engines.positional import addresses, audit, cursors, leases, log, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue
from penstock.engines.positional.ranges import END


def every(
    transaction: Transaction,
    name: str,
    group_name: str | None,
    outcome: State | None,
    limit: int,
    before: Edge | None,
) -> list[DeadLetter]:
    queue = queues.find(transaction, name)
    if queue is None:
        return []
    if group_name is None:
        groups = queues.groups(transaction, queue)
    else:
        reader = _reader(transaction, name, group_name)
        groups = [] if reader is None else [reader[1]]
    letters = [one for group in groups for one in _letters(transaction, queue, group, outcome, limit, before)]
    return sorted(letters, key=lambda one: (one.died_at, one.position, one.group), reverse=True)[:limit]


def _letters(
    transaction: Transaction, queue: StoredQueue, group: Group, outcome: State | None, limit: int, before: Edge | None
) -> Iterator[DeadLetter]:
    before_at, before_position, before_group = (END, END, "") if before is None else before
    bindings = {
        "group_id": group.group_id,
        "outcome": outcome,
        "limit": limit,
        "before_at": before_at,
        # Of two dead letters with the same time and position the one of the later group comes first.
        "before_position": before_position + (group.name < before_group),
    }
    for row in transaction.rows("dead_letters", bindings):
        position, ended, reason, attempts, died_at, created_at, chosen, content_type, headers, payload = row
        yield DeadLetter(
            id=chosen or made_id(created_at, transaction.salt, position),
            queue=queue.name,
            group=group.name,
            position=position,
            payload=payload,
            content_type=content_type or BYTES,
            headers=decode_headers(headers),
            outcome=State(ended),
            reason=reason,
            attempts=attempts,
            died_at=to_time(died_at),
            created_at=to_time(created_at),
        )


def redrive(
    transaction: Transaction, name: str, group_name: str, ids: Sequence[str] | None, outcome: State | None, limit: int
) -> int:
    reader = _reader(transaction, name, group_name)
    if reader is None:
        return 0
    queue, group = reader
    return sum(
        _redrive(transaction, queue, group, position, outcome)
        for position in _positions(transaction, queue, group, ids, outcome, limit)
    )


def purge(
    transaction: Transaction, name: str, group_name: str, ids: Sequence[str] | None, outcome: State | None, limit: int
) -> int:
    reader = _reader(transaction, name, group_name)
    if reader is None:
        return 0
    queue, group = reader
    count = 0
    for position in _positions(transaction, queue, group, ids, outcome, limit):
        if _find(transaction, group, position, outcome) is not None:
            count += transaction.changes("remove_dead_letter", {"group_id": group.group_id, "position": position})
    return count


def purge_old(transaction: Transaction, queue: StoredQueue, group: Group, before: int) -> int:
    return transaction.changes("purge_old_dead_letters", {"group_id": group.group_id, "before": before})


def _reader(transaction: Transaction, name: str, group_name: str) -> tuple[StoredQueue, Group] | None:
    """The queue and group, or None where there can be no dead letters yet; an unknown group is NotFound."""
    queue = queues.find(transaction, name)
    group = None if queue is None else queues.find_group(transaction, queue, group_name)
    if queue is None or (group is None and group_name == queue.policy.default_group):
        return None
    return queue, group or queues.get_group(transaction, queue, group_name)


def _positions(
    transaction: Transaction,
    queue: StoredQueue,
    group: Group,
    ids: Sequence[str] | None,
    outcome: State | None,
    limit: int,
) -> list[int]:
    if ids is None:
        bindings = {"group_id": group.group_id, "outcome": outcome, "limit": limit}
        return [position for (position,) in transaction.rows("oldest_dead_letters", bindings)]
    places = [log.locate(transaction, queue, message_id) for message_id in ids[:limit]]
    return [place.position for place in places if place is not None and place.position is not None]


def _find(transaction: Transaction, group: Group, position: int, outcome: State | None) -> tuple[object, ...] | None:
    bindings = {"group_id": group.group_id, "position": position, "outcome": outcome}
    return transaction.row("find_dead_letter", bindings)


def _redrive(transaction: Transaction, queue: StoredQueue, group: Group, position: int, outcome: State | None) -> int:
    bindings = {"group_id": group.group_id, "position": position, "outcome": outcome}
    row = transaction.row("find_dead_letter", bindings)
    if row is None:
        return 0
    ended, attempts, lane_id, priority, created_at, expires_at, deadline_at, address, chosen = row
    message_id = chosen or made_id(created_at, transaction.salt, position)
    if address is not None and not _retake(transaction, queue, group, address, message_id, position):
        return 0
    transaction.run("remove_dead_letter", {"group_id": group.group_id, "position": position})
    cursors.uncount_outcomes(transaction, group, {ended: 1})
    step = audit.AuditStep(
        Event.REDRIVE, State.READY, position, position, "system", reasons.REDRIVEN.format(ended), attempts
    )
    audit.record(transaction, queue.queue_id, group.group_id, step)
    # Its times start from now, as if it had been sent again; it is no longer a member of its batch.
    moved = transaction.now - created_at
    flight = leases.Flight(
        position=position,
        lane_id=lane_id,
        priority=priority if priority >= 0 else log.WITHDRAWN - priority,
        attempt=0,
        expires_at=None if expires_at is None else expires_at + moved,
        deadline_at=None if deadline_at is None else deadline_at + moved,
        batch_id=None,
        batch_cancelled=False,
        token=0,
        consumer="system",
        lease=None,
    )
    again = Decision(Event.REDRIVE, State.READY, transaction.now, 0, flight.expires_at)
    leases.track(transaction, group, flight, again, None)
    return 1


def _retake(
    transaction: Transaction, queue: StoredQueue, group: Group, address: str, message_id: str, position: int
) -> bool:
    """Give the message its address back, unless another live message has it."""
    if group.name != queue.policy.primary_group:
        return True
    row = transaction.row("find_address", {"queue_id": queue.queue_id, "address": address})
    if row is not None and row[2] is None and row[0] != message_id:
        return False
    addresses.take_address(transaction, queue.queue_id, address, message_id, position)
    return True
