"""leased -> succeeded for many messages at once, of any receives: first attempts, lease by lease.

Those who receive together share a token, and their acks come together as well. So what is left of a receive is read
once, the messages are taken out of it, and every step is written by one statement for all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.domain.lifecycle import Event, State
from penstock.engines.sqlite import ending, tracking
from penstock.engines.sqlite.ending import Step
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.ranges import ranges
from penstock.engines.sqlite.tracking import Lease
from penstock.engines.sqlite.transaction import Transaction

# The positions to ack of each token.
Wanted = dict[int, set[int]]


def ack(transaction: Transaction, queue: Queue, group: Group, wanted: Wanted) -> set[tuple[int, int]]:
    """Those that were in flight as first attempts, as (token, position), and are done now."""
    done: set[tuple[int, int]] = set()
    others: Wanted = {}
    for token, positions in wanted.items():
        if _ack_in_a_row(transaction, queue, group, token, positions):
            done.update([(token, position) for position in positions])
        else:
            others[token] = positions
    return done | _ack_each(transaction, queue, group, others) if others else done


def _ack_in_a_row(transaction: Transaction, queue: Queue, group: Group, token: int, positions: set[int]) -> bool:
    """Whether they were whole leases in a row that nobody owns, which is the usual case of many consumers that receive
    and ack alike. Then all is done without a look at each."""
    first, last = min(positions), max(positions)
    if not 1 < len(positions) == last - first + 1:
        return False
    bindings = {"group_id": group.group_id, "token": token, "first": first, "last": last}
    found = transaction.row(tracking.SQL.leases_between, {**bindings, "now": transaction.now})
    count, widest, careful = found or (0, 0, 0)
    if count != len(positions) or widest > ending.MAX_SPAN or (careful and group.name == queue.policy.primary_group):
        return False
    ending.record_leases(transaction, queue, group, Event.ACK, State.SUCCEEDED, token, first, last)
    transaction.run(tracking.SQL.drop_leases, bindings)
    transaction.run(ending.SQL.count_succeeded, {"group_id": group.group_id, "count": count})
    return True


def _ack_each(transaction: Transaction, queue: Queue, group: Group, wanted: Wanted) -> set[tuple[int, int]]:
    owners: list[Step] = []  # may have an address or a batch
    plain: list[Step] = []
    dropped: list[tuple[int, int]] = []
    left: list[tuple[object, ...]] = []
    for token, positions in wanted.items():
        for lease, acked in _found(transaction, group, token, positions):
            dropped.append((lease.group_id, lease.last))
            left += [lease.part(first, last) for first, last in _gaps(lease, acked)]
            steps = owners if lease.careful else plain
            steps += [
                Step(Event.ACK, State.SUCCEEDED, first, last, lease.consumer, None, 1, token) for first, last in acked
            ]
    transaction.run_many(tracking.SQL.drop_lease, dropped)
    transaction.run_many(tracking.SQL.make_lease, left)
    if group.name != queue.policy.primary_group:
        plain += owners
    else:
        for step in owners:
            ending.end(transaction, queue, group, step)
    if plain:
        ending.succeed(transaction, queue, group, plain)
    return {(one.token or 0, place) for one in (*plain, *owners) for place in range(one.first, one.last + 1)}


def _found(
    transaction: Transaction, group: Group, token: int, positions: set[int]
) -> Iterator[tuple[Lease, list[tuple[int, int]]]]:
    """Leases of the token that are in force, each with the ranges of it that are wanted."""
    for lease in tracking.leases_of(transaction, group, token, min(positions), max(positions)):
        if lease.ends_at <= transaction.now:
            continue
        members = range(lease.first, lease.last + 1)
        wanted = positions.issuperset(members) if len(members) <= len(positions) else False
        acked = [(lease.first, lease.last)] if wanted else list(ranges(sorted(positions.intersection(members))))
        if acked:
            yield lease, acked


def _gaps(lease: Lease, taken: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What is left of a lease."""
    at = lease.first
    for first, last in taken:
        if at < first:
            yield at, first - 1
        at = last + 1
    if at <= lease.last:
        yield at, lease.last
