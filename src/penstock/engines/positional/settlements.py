"""leased -> the decided state: settling and extending, by token."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from penstock.domain import reasons
from penstock.domain.errors import OutOfOrder
from penstock.domain.lifecycle import FAILED_ATTEMPTS, LIVE, Event, State
from penstock.domain.settlement import (
    Settle,
    Settled,
    decide,
    extended_end,
    is_held,
    lease_lost,
    out_of_order,
    would_end,
)
from penstock.engines.positional import audit, leases, outcomes, queues
from penstock.engines.positional.audit import AuditStep
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.leases import Flight, LeaseRange
from penstock.engines.positional.queues import Group, StoredQueue
from penstock.engines.positional.ranges import contiguous_ranges

# The positions to ack, by token.
Wanted = dict[int, set[int]]


def settle(transaction: Transaction, name: str, group_name: str, settles: Sequence[Settle]) -> list[Settled]:
    queue, group = queues.find_reader(transaction, name, group_name)
    if queue is None or group is None:
        return [lease_lost(one) for one in settles]
    if queue.policy.keeps_order:
        return _settle_in_order(transaction, queue, group, settles)
    if len(settles) == 1:
        return [_settle_one(transaction, queue, group, settles[0])]
    results: list[Settled] = []
    for is_ack, run in groupby(settles, key=is_plain_ack):
        several = list(run)
        if is_ack:
            results += _ack_each(transaction, queue, group, several)
        else:
            results += _settle_each(transaction, queue, group, several)
    return results


def _settle_each(transaction: Transaction, queue: StoredQueue, group: Group, settles: list[Settle]) -> list[Settled]:
    """Settlements other than plain acks. First attempts are taken out of their leases together."""
    wanted: Wanted = {}
    for one in settles:
        wanted.setdefault(one.token, set()).add(one.position)
    taken = _take_first_attempts(transaction, group, wanted)
    results: list[Settled] = []
    for one in settles:
        flight = taken.pop((one.token, one.position), None)
        if flight is None:
            results.append(_settle(transaction, queue, group, one))
        else:
            state = conclude(transaction, queue, group, flight, one.event, one.reason, one.delay_seconds, one.code)
            results.append(Settled(one.id, state))
    return results


def _take_first_attempts(transaction: Transaction, group: Group, wanted: Wanted) -> dict[tuple[int, int], Flight]:
    """End the leases of first attempts that their tokens may settle, and return the messages."""
    taken: dict[tuple[int, int], Flight] = {}
    dropped: list[tuple[int, int]] = []
    left: list[tuple[int | str, ...]] = []
    for token, positions in wanted.items():
        for lease, parts in _leases_to_ack(transaction, group, token, positions):
            held: list[int] = []
            for first, last in parts:
                for flight in leases.flights(transaction, lease, first, last):
                    if is_held(flight.as_attempt(), lease.ends_at, transaction.now):
                        taken[token, flight.position] = flight._replace(lease=None, is_free=True)
                        held.append(flight.position)
            if held:
                dropped.append((lease.group_id, lease.last))
                left += [lease.part(first, last) for first, last in _gaps(lease, contiguous_ranges(held))]
    transaction.run_many("drop_lease", dropped)
    transaction.run_many("make_lease", left)
    return taken


def _settle_in_order(
    transaction: Transaction, queue: StoredQueue, group: Group, settles: Sequence[Settle]
) -> list[Settled]:
    """Settle in log order, whatever the order of the call, and retry those that others of the call unblock."""
    results: dict[int, Settled] = {}
    left = sorted(range(len(settles)), key=lambda place: settles[place].position)
    while left:
        results.update({place: _settle(transaction, queue, group, settles[place]) for place in left})
        refused = [place for place in left if isinstance(results[place].error, OutOfOrder)]
        if len(refused) == len(left):
            break
        left = refused
    return [results[place] for place in range(len(settles))]


def _settle_one(transaction: Transaction, queue: StoredQueue, group: Group, settle: Settle) -> Settled:
    position = settle.position
    if is_plain_ack(settle) and _ack_first(transaction, queue, group, settle.token, position):
        return Settled(settle.id, State.SUCCEEDED)
    return _settle(transaction, queue, group, settle)


def is_plain_ack(settle: Settle) -> bool:
    return settle.event is Event.ACK and settle.reason is None


def _ack_each(transaction: Transaction, queue: StoredQueue, group: Group, acks: list[Settle]) -> list[Settled]:
    """Acks in any order: first attempts together, the others one by one."""
    wanted: Wanted = {}
    for one in acks:
        wanted.setdefault(one.token, set()).add(one.position)
    done = _ack_first_attempts(transaction, queue, group, wanted)
    return [
        Settled(one.id, State.SUCCEEDED)
        if (one.token, one.position) in done
        else _settle(transaction, queue, group, one)
        for one in acks
    ]


def _ack_first(transaction: Transaction, queue: StoredQueue, group: Group, token: int, position: int) -> bool:
    """Ack a first attempt; False when the message is not leased as one."""
    lease = leases.lease_at(transaction, group, position)
    if lease is None or lease.token != token or lease.ends_at <= transaction.now:
        return False
    leases.split(transaction, lease, position, position)
    _succeed(transaction, queue, group, lease, position, position)
    return True


def _settle(transaction: Transaction, queue: StoredQueue, group: Group, settle: Settle) -> Settled:
    flight = leases.flight(transaction, group, settle.token, settle.position)
    if flight is None:
        return _repeated(transaction, group, settle) or lease_lost(settle)
    if queue.policy.keeps_order and _is_out_of_order(transaction, queue, group, flight, settle.event):
        return out_of_order(settle)
    state = conclude(transaction, queue, group, flight, settle.event, settle.reason, settle.delay_seconds, settle.code)
    return Settled(settle.id, state)


def _is_out_of_order(transaction: Transaction, queue: StoredQueue, group: Group, flight: Flight, event: Event) -> bool:
    if not would_end(event, flight.attempt, queue.policy):
        return False
    bindings = {
        "token": flight.token,
        "group_id": group.group_id,
        "position": flight.position,
        "lane_id": flight.lane_id,
        "priority": flight.priority,
    }
    return transaction.row("earlier_in_flight", bindings) is not None


def conclude(
    transaction: Transaction,
    queue: StoredQueue,
    group: Group,
    flight: Flight,
    event: Event,
    reason: str | None,
    delay_seconds: float | None = None,
    code: str | None = None,
) -> State:
    """Decide the next state of a message in flight, and store it."""
    attempt = flight.as_attempt()
    decision = decide(event, attempt, queue.policy, transaction.now, transaction.random, delay_seconds)
    reason = reasons.OF_EVENT.get(decision.event) if reason is None else reason
    step = audit.AuditStep(
        decision.event,
        decision.state,
        flight.position,
        flight.position,
        flight.consumer,
        reason,
        flight.attempt,
        flight.token,
        code,
    )
    if not flight.is_free:
        leases.end_lease(transaction, group, flight)
    if decision.event in FAILED_ATTEMPTS:
        transaction.run("count_failed_attempt", {"group_id": group.group_id})
    if decision.state not in LIVE:
        outcomes.end(transaction, queue, group, step)
        return decision.state
    audit.record(transaction, queue.queue_id, group.group_id, step)
    leases.track(transaction, group, flight, decision, reason)
    if queue.policy.keeps_order and event is not Event.RELEASE:
        _release_later(transaction, queue, group, flight)
    return decision.state


def _release_later(transaction: Transaction, queue: StoredQueue, group: Group, blocking: Flight) -> None:
    """Release what was handed out behind a message that is retried, to keep the order."""
    bindings = {
        "token": blocking.token,
        "group_id": group.group_id,
        "position": blocking.position,
        "lane_id": blocking.lane_id,
        "priority": blocking.priority,
    }
    reason = reasons.RELEASED_BEHIND.format(blocking.position)
    for first, last, priority in transaction.rows("later_in_flight", bindings):
        start = max(first, blocking.position + 1) if priority == blocking.priority else first
        for position in range(start, last + 1):
            flight = leases.flight(transaction, group, blocking.token, position)
            if flight is not None:
                conclude(transaction, queue, group, flight, Event.RELEASE, reason)


def _repeated(transaction: Transaction, group: Group, settle: Settle) -> Settled | None:
    bindings = {
        "position": settle.position,
        "group_id": group.group_id,
        "token": settle.token,
        "event": settle.event.value,
        "span": audit.MAX_SPAN - 1,
    }
    state = transaction.value("settled_before", bindings)
    return None if state is None else Settled(settle.id, State(state), is_repeat=True)


def ack_all(transaction: Transaction, name: str, group_name: str, token: int, positions: list[int]) -> bool:
    """Ack a whole receive of first attempts, range by range, without reading its messages."""
    queue, group = queues.find_reader(transaction, name, group_name)
    if queue is None or group is None:
        return False
    held = leases.leases_of(transaction, group, token, positions[0], positions[-1])
    if not _is_whole(held, positions, transaction.now):
        return False
    if queue.policy.keeps_order and _in_flight(transaction, group, token) != len(positions):
        return False
    for lease in held:
        leases.drop(transaction, lease)
        _succeed(transaction, queue, group, lease, lease.first, lease.last)
    return True


def _succeed(
    transaction: Transaction, queue: StoredQueue, group: Group, lease: LeaseRange, first: int, last: int
) -> None:
    """End first attempts of a range. Without checks its lane has no message with an address or a batch."""
    step = audit.AuditStep(Event.ACK, State.SUCCEEDED, first, last, lease.consumer, None, 1, lease.token)
    if lease.needs_checks:
        outcomes.end(transaction, queue, group, step)
    else:
        outcomes.succeed(transaction, queue, group, [step])


def _is_whole(leases: list[LeaseRange], positions: list[int], now: int) -> bool:
    if not leases or any(lease.ends_at <= now for lease in leases):
        return False
    expected: list[int] = []
    for lease in leases:
        expected.extend(range(lease.first, lease.last + 1))
    return positions == expected


def _in_flight(transaction: Transaction, group: Group, token: int) -> int:
    count: int = transaction.value("count_in_flight", {"group_id": group.group_id, "token": token})
    return count


def extend(
    transaction: Transaction, name: str, group_name: str, leases: Sequence[tuple[int, int]], seconds: float
) -> list[int | None]:
    _, group = queues.find_reader(transaction, name, group_name)
    if group is None:
        return [None] * len(leases)
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
    flight = leases.flight(transaction, group, token, position)
    if flight is None:
        return
    lease = flight.lease
    if lease is not None and all(one in positions for one in range(lease.first, lease.last + 1)):
        members = leases.flights(transaction, lease, lease.first, lease.last)
        until = {extended_end(one.as_attempt(), lease.ends_at, transaction.now, seconds) for one in members}
        if len(until) == 1:
            end = until.pop()
            extended = {"group_id": group.group_id, "last": lease.last, "ends_at": end}
            transaction.run("extend_lease", extended)
            ends.update({(token, one.position): end for one in members})
            return
    ends[token, position] = _extend_alone(transaction, group, flight, seconds)


def _extend_alone(transaction: Transaction, group: Group, flight: Flight, seconds: float) -> int:
    """Extend the lease of one message. A lease never becomes shorter, and never outlives the expiry or deadline."""
    attempt, now = flight.as_attempt(), transaction.now
    if flight.lease is not None:
        end = extended_end(attempt, flight.lease.ends_at, now, seconds)
        leases.end_lease(transaction, group, flight)
        leases.track_leased(transaction, group, flight, end)
        return end
    row = transaction.row("find_tracked", {"group_id": group.group_id, "position": flight.position})
    assert row is not None
    end = extended_end(attempt, row[5], now, seconds)
    bindings = {"group_id": group.group_id, "position": flight.position, "ends_at": end}
    transaction.run("extend_tracked", bindings)
    return end


def _ack_first_attempts(
    transaction: Transaction, queue: StoredQueue, group: Group, wanted: Wanted
) -> set[tuple[int, int]]:
    """Ack first attempts of any receives; return those that were leased, as (token, position).

    Consumers that receive together share a token and usually ack together. So the ranges of a receive are read once,
    and every table is written with one statement for all.
    """
    done: set[tuple[int, int]] = set()
    others: Wanted = {}
    for token, positions in wanted.items():
        if _ack_contiguous(transaction, queue, group, token, positions):
            done.update([(token, position) for position in positions])
        else:
            others[token] = positions
    return done | _ack_leases(transaction, queue, group, others) if others else done


def _ack_contiguous(
    transaction: Transaction, queue: StoredQueue, group: Group, token: int, positions: set[int]
) -> bool:
    """Ack contiguous whole ranges without address or batch, without reading each, which is the usual case of many
    consumers that receive and ack together. False, with nothing changed, otherwise."""
    first, last = min(positions), max(positions)
    if not 1 < len(positions) == last - first + 1:
        return False
    bindings = {"group_id": group.group_id, "token": token, "first": first, "last": last}
    found = transaction.row("leases_between", {**bindings, "now": transaction.now})
    count, widest, needs_checks = found or (0, 0, 0)
    if (
        count != len(positions)
        or widest > audit.MAX_SPAN
        or (needs_checks and group.name == queue.policy.primary_group)
    ):
        return False
    audit.record_leases(transaction, queue, group, Event.ACK, State.SUCCEEDED, token, first, last)
    transaction.run("drop_leases", bindings)
    transaction.run("count_succeeded", {"group_id": group.group_id, "count": count})
    return True


def _ack_leases(transaction: Transaction, queue: StoredQueue, group: Group, wanted: Wanted) -> set[tuple[int, int]]:
    owners: list[AuditStep] = []  # may have an address or a batch
    plain: list[AuditStep] = []
    dropped: list[tuple[int, int]] = []
    left: list[tuple[object, ...]] = []
    for token, positions in wanted.items():
        for lease, acked in _leases_to_ack(transaction, group, token, positions):
            dropped.append((lease.group_id, lease.last))
            left += [lease.part(first, last) for first, last in _gaps(lease, acked)]
            steps = owners if lease.needs_checks else plain
            steps += [
                AuditStep(Event.ACK, State.SUCCEEDED, first, last, lease.consumer, None, 1, token)
                for first, last in acked
            ]
    transaction.run_many("drop_lease", dropped)
    transaction.run_many("make_lease", left)
    if group.name != queue.policy.primary_group:
        plain += owners
    else:
        for step in owners:
            outcomes.end(transaction, queue, group, step)
    if plain:
        outcomes.succeed(transaction, queue, group, plain)
    return {(one.token or 0, place) for one in (*plain, *owners) for place in range(one.first, one.last + 1)}


def _leases_to_ack(
    transaction: Transaction, group: Group, token: int, positions: set[int]
) -> Iterator[tuple[LeaseRange, list[tuple[int, int]]]]:
    """Unexpired ranges of the token, each with the parts of it to ack."""
    for lease in leases.leases_of(transaction, group, token, min(positions), max(positions)):
        if lease.ends_at <= transaction.now:
            continue
        members = range(lease.first, lease.last + 1)
        wanted = positions.issuperset(members) if len(members) <= len(positions) else False
        parts = contiguous_ranges(sorted(positions.intersection(members)))
        acked = [(lease.first, lease.last)] if wanted else list(parts)
        if acked:
            yield lease, acked


def _gaps(lease: LeaseRange, taken: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The parts of a range that remain leased."""
    at = lease.first
    for first, last in taken:
        if at < first:
            yield at, first - 1
        at = last + 1
    if at <= lease.last:
        yield at, lease.last
