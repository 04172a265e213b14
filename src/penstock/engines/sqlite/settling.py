"""leased -> what the consumer says: settling and extending, each by its token."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from penstock.domain.errors import OutOfOrder
from penstock.domain.lifecycle import LIVE, Event, State
from penstock.domain.settlement import Settle, Settled, decide, lease_end, lease_lost, out_of_order, would_end
from penstock.engines.sqlite import acking, ending, queues, tracking
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.tracking import Flight, Lease
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/settle.sql")


def settle(transaction: Transaction, name: str, group_name: str, settles: Sequence[Settle]) -> list[Settled]:
    queue, group = queues.find_reader(transaction, name, group_name)
    if queue is None or group is None:
        return [lease_lost(one) for one in settles]
    if queue.policy.keeps_order:
        return _settle_in_order(transaction, queue, group, settles)
    if len(settles) == 1:
        return [_settle_one(transaction, queue, group, settles[0])]
    results: list[Settled] = []
    for is_ack, run in groupby(settles, key=_is_plain_ack):
        several = list(run)
        if is_ack:
            results += _ack_each(transaction, queue, group, several)
        else:
            results += [_settle(transaction, queue, group, one) for one in several]
    return results


def _settle_in_order(transaction: Transaction, queue: Queue, group: Group, settles: Sequence[Settle]) -> list[Settled]:
    """The settlements of one call need not be given in order: what others of them make way for is tried again."""
    results: dict[int, Settled] = {}
    left = sorted(range(len(settles)), key=lambda place: settles[place].position)
    while left:
        results.update({place: _settle(transaction, queue, group, settles[place]) for place in left})
        refused = [place for place in left if isinstance(results[place].error, OutOfOrder)]
        if len(refused) == len(left):
            break
        left = refused
    return [results[place] for place in range(len(settles))]


def _settle_one(transaction: Transaction, queue: Queue, group: Group, settle: Settle) -> Settled:
    position = settle.position
    if _is_plain_ack(settle) and _ack_first(transaction, queue, group, settle.token, position):
        return Settled(settle.id, State.SUCCEEDED)
    return _settle(transaction, queue, group, settle)


def _is_plain_ack(settle: Settle) -> bool:
    return settle.event is Event.ACK and settle.reason is None


def _ack_each(transaction: Transaction, queue: Queue, group: Group, acks: list[Settle]) -> list[Settled]:
    """Acks in any order: those of first attempts together, the others one by one."""
    wanted: acking.Wanted = {}
    for one in acks:
        wanted.setdefault(one.token, set()).add(one.position)
    done = acking.ack(transaction, queue, group, wanted)
    return [
        Settled(one.id, State.SUCCEEDED)
        if (one.token, one.position) in done
        else _settle(transaction, queue, group, one)
        for one in acks
    ]


def _ack_first(transaction: Transaction, queue: Queue, group: Group, token: int, position: int) -> bool:
    """A first attempt."""
    lease = tracking.lease_at(transaction, group, position)
    if lease is None or lease.token != token or lease.ends_at <= transaction.now:
        return False
    tracking.carve(transaction, lease, position, position)
    _succeed(transaction, queue, group, lease, position, position)
    return True


def _settle(transaction: Transaction, queue: Queue, group: Group, settle: Settle) -> Settled:
    flight = tracking.flight(transaction, group, settle.token, settle.position)
    if flight is None:
        return _repeated(transaction, group, settle) or lease_lost(settle)
    if queue.policy.keeps_order and _comes_too_soon(transaction, queue, group, flight, settle.event):
        return out_of_order(settle)
    state = conclude(transaction, queue, group, flight, settle.event, settle.reason, settle.delay_seconds)
    return Settled(settle.id, state)


def _comes_too_soon(transaction: Transaction, queue: Queue, group: Group, flight: Flight, event: Event) -> bool:
    if not would_end(event, flight.attempt, queue.policy):
        return False
    bindings = {
        "token": flight.token,
        "group_id": group.group_id,
        "position": flight.position,
        "lane_id": flight.lane_id,
        "priority": flight.priority,
    }
    return transaction.row(tracking.SQL.ahead, bindings) is not None


def conclude(
    transaction: Transaction,
    queue: Queue,
    group: Group,
    flight: Flight,
    event: Event,
    reason: str | None,
    delay_seconds: float | None = None,
) -> State:
    """Decide where a message in flight goes, and write it down."""
    attempt = flight.as_attempt()
    verdict = decide(event, attempt, queue.policy, transaction.now, transaction.random, delay_seconds)
    reason = ending.REASONS.get(verdict.event) if reason is None else reason
    step = ending.Step(
        verdict.event,
        verdict.state,
        flight.position,
        flight.position,
        flight.consumer,
        reason,
        flight.attempt,
        flight.token,
    )
    tracking.land(transaction, group, flight)
    if verdict.state not in LIVE:
        ending.end(transaction, queue, group, step)
        return verdict.state
    ending.record(transaction, queue.queue_id, group.group_id, step)
    tracking.track(transaction, group, flight, verdict, reason)
    if queue.policy.keeps_order and event is not Event.RELEASE:
        _release_behind(transaction, queue, group, flight)
    return verdict.state


def _release_behind(transaction: Transaction, queue: Queue, group: Group, blocking: Flight) -> None:
    """In an ordered queue nothing may be done before what comes first: give back what was handed out behind it."""
    bindings = {
        "token": blocking.token,
        "group_id": group.group_id,
        "position": blocking.position,
        "lane_id": blocking.lane_id,
    }
    reason = f"behind message at position {blocking.position}, which is tried again"
    for first, last, _ in transaction.rows(tracking.SQL.behind, bindings):
        for position in range(max(first, blocking.position + 1), last + 1):
            flight = tracking.flight(transaction, group, blocking.token, position)
            if flight is not None:
                conclude(transaction, queue, group, flight, Event.RELEASE, reason)


def _repeated(transaction: Transaction, group: Group, settle: Settle) -> Settled | None:
    bindings = {
        "position": settle.position,
        "group_id": group.group_id,
        "token": settle.token,
        "event": settle.event.value,
        "span": ending.MAX_SPAN - 1,
    }
    state = transaction.value(SQL.settled_before, bindings)
    return None if state is None else Settled(settle.id, State(state))


def ack_all(transaction: Transaction, name: str, group_name: str, token: int, positions: list[int]) -> bool:
    """The fast path: a whole receive of first attempts, range by range, without looking at its messages."""
    queue, group = queues.find_reader(transaction, name, group_name)
    if queue is None or group is None:
        return False
    leases = tracking.leases_of(transaction, group, token, positions[0], positions[-1])
    if not _is_whole(leases, positions, transaction.now):
        return False
    if queue.policy.keeps_order and _in_flight(transaction, group, token) != len(positions):
        return False
    for lease in leases:
        tracking.drop(transaction, lease)
        _succeed(transaction, queue, group, lease, lease.first, lease.last)
    return True


def _succeed(transaction: Transaction, queue: Queue, group: Group, lease: Lease, first: int, last: int) -> None:
    """First attempts of a lease. A lane that needs no care has no message with an address or a batch."""
    step = ending.Step(Event.ACK, State.SUCCEEDED, first, last, lease.consumer, None, 1, lease.token)
    if lease.careful:
        ending.end(transaction, queue, group, step)
    else:
        ending.succeed(transaction, queue, group, [step])


def _is_whole(leases: list[Lease], positions: list[int], now: int) -> bool:
    if not leases or any(lease.ends_at <= now for lease in leases):
        return False
    expected: list[int] = []
    for lease in leases:
        expected.extend(range(lease.first, lease.last + 1))
    return positions == expected


def _in_flight(transaction: Transaction, group: Group, token: int) -> int:
    count: int = transaction.value(tracking.SQL.in_flight_of, {"group_id": group.group_id, "token": token})
    return count


def extend(
    transaction: Transaction, name: str, group_name: str, leases: Sequence[tuple[int, int]], seconds: float
) -> list[int | None]:
    queue = queues.get(transaction, name)
    group = queues.get_group(transaction, queue, group_name)
    asked: dict[int, set[int]] = {}
    for token, position in leases:
        asked.setdefault(token, set()).add(position)
    ends: dict[tuple[int, int], int] = {}
    for token, positions in asked.items():
        for position in sorted(positions):
            if (token, position) not in ends:
                _extend(transaction, group, token, position, positions, seconds, ends)
    return [ends.get(lease) for lease in leases]


def _extend(
    transaction: Transaction,
    group: Group,
    token: int,
    position: int,
    positions: set[int],
    seconds: float,
    ends: dict[tuple[int, int], int],
) -> None:
    flight = tracking.flight(transaction, group, token, position)
    if flight is None:
        return
    lease = flight.lease
    if lease is not None and all(one in positions for one in range(lease.first, lease.last + 1)):
        members = tracking.flights(transaction, lease, lease.first, lease.last)
        until = {max(lease.ends_at, lease_end(one.as_attempt(), transaction.now, seconds)) for one in members}
        if len(until) == 1:
            end = until.pop()
            extended = {"group_id": group.group_id, "last": lease.last, "ends_at": end}
            transaction.run(tracking.SQL.extend_lease, extended)
            ends.update({(token, one.position): end for one in members})
            return
    ends[token, position] = _extend_alone(transaction, group, flight, seconds)


def _extend_alone(transaction: Transaction, group: Group, flight: Flight, seconds: float) -> int:
    """A lease only ever becomes longer; its message's expiry or deadline still ends it."""
    end = lease_end(flight.as_attempt(), transaction.now, seconds)
    if flight.lease is not None:
        end = max(end, flight.lease.ends_at)
        tracking.land(transaction, group, flight)
        tracking.track_leased(transaction, group, flight, end)
        return end
    row = transaction.row(tracking.SQL.find_tracked, {"group_id": group.group_id, "position": flight.position})
    assert row is not None
    until_at: int = row[5]
    end = max(end, until_at)
    bindings = {"group_id": group.group_id, "position": flight.position, "ends_at": end}
    transaction.run(tracking.SQL.extend_tracked, bindings)
    return end
