"""ready -> leased: receiving.

A receive first handles what is due, then fills up: best priority first, within a priority due retries before unread
messages. Unread messages are read from the group's cursor in a lane and leased as one range. A lane that ever had
messages with an expiry, a deadline or a batch is read with checks: messages that have expired are skipped and recorded
as ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from penstock.domain import reasons
from penstock.domain.lifecycle import Event, State
from penstock.domain.settlement import Attempt, lease_end
from penstock.domain.timestamps import SECOND, microseconds
from penstock.engines.contract import (
    ATTEMPT,
    DEADLINE_AT,
    EXPIRES_AT,
    LEASE_ENDS_AT,
    POSITION,
    Receipt,
    Row,
)
from penstock.engines.positional import audit, consumers, lapsed_leases, leases, outcomes, promotion, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import Group, StoredQueue
from penstock.engines.positional.ranges import contiguous_ranges

TOUCH_EVERY = 10 * SECOND
# A range leased to one consumer: the consumer, the first and the last position.
Leased = tuple[str, int, int]


class UnreadLane(msgspec.Struct, frozen=True):
    """A lane with unread messages, and the group's cursor in it."""

    lane_id: int
    priority: int
    shard: int
    needs_checks: int
    last_position: int
    position: int
    passed: int
    next_first: int
    next_last: int
    token: int


class Due(msgspec.Struct, frozen=True):
    """What a receive has to handle before it reads messages, each as 0 or 1."""

    held: int = 0
    retries: int = 0
    lapsed: int = 0
    ready: int = 0
    skips: int = 0
    removed_consumers: int = 0


# The queue and group of a receive, and what is due there.
ReceiveStart = tuple[StoredQueue, Group, Due]


def begin(transaction: Transaction, name: str, group_name: str | None, needs_group: bool) -> ReceiveStart:
    """Find queue and group, creating them on first use unless `needs_group`."""
    row = transaction.row("open_receive", (name, group_name, transaction.time))
    if needs_group and (row is None or row[7] is None):
        queue = queues.get(transaction, name)
        queues.get_group(transaction, queue, group_name or queue.policy.default_group)
    queue = queues.ensure(transaction, name) if row is None else queues.from_row(row[:7])
    if row is None or row[7] is None:
        group = queues.ensure_group(transaction, queue, group_name or queue.policy.default_group)
        held = row is not None and row[13]
        return queue, group, Due(held=int(held))
    return queue, queues.group_from_row(row[7:13]), Due(*row[13:])


def receive(
    transaction: Transaction, opening: ReceiveStart, consumer: str, limit: int, lease_seconds: float | None
) -> Receipt:
    queue, group, due = opening
    queues.check_leasing(queue, group)
    if due.removed_consumers:
        consumers.check_not_removed(transaction, queue, group, consumer)
    receive = _Receive(transaction, queue, group, consumer, limit, lease_seconds)
    if not queue.policy.paused:
        receive.prepare(due)
        receive.fill()
        receive.finish()
    return Receipt(receive.token, queue.name, group.name, consumer, transaction.salt, receive.rows)


def receive_each(
    transaction: Transaction, opening: ReceiveStart, shares: Sequence[tuple[str, int]], lease_seconds: float | None
) -> list[Receipt]:
    """One receive for several consumers. In an ordered queue each consumer gets its own, because a lease may hold
    several messages of one key, which must not be processed concurrently."""
    queue, group, due = opening
    if queue.policy.ordered:
        return [receive(transaction, opening, consumer, limit, lease_seconds) for consumer, limit in shares]
    queues.check_leasing(queue, group)
    if due.removed_consumers:
        for consumer, _ in shares:
            consumers.check_not_removed(transaction, queue, group, consumer)
    limit = sum(limit for _, limit in shares)
    joint = _Receive(transaction, queue, group, shares[0][0], limit, lease_seconds, shares)
    if not queue.policy.paused:
        joint.prepare(due)
        joint.fill()
        joint.finish()
    receipts: list[Receipt] = []
    start = 0
    for consumer, limit in shares:
        rows = joint.rows[start : start + limit]
        receipts.append(Receipt(joint.token, queue.name, group.name, consumer, transaction.salt, rows))
        start += limit
    return receipts


def receive_again(
    transaction: Transaction,
    queue: StoredQueue,
    group: Group,
    consumer: str,
    positions: list[int],
    lease_seconds: float,
) -> Receipt:
    """Receive messages that are ready, by position."""
    receive = _Receive(transaction, queue, group, consumer, len(positions), lease_seconds)
    for position in positions:
        receive.take_retry(position)
    return Receipt(receive.token, queue.name, group.name, consumer, transaction.salt, receive.rows)


class _Receive:
    def __init__(
        self,
        transaction: Transaction,
        queue: StoredQueue,
        group: Group,
        consumer: str,
        limit: int,
        lease_seconds: float | None,
        shares: Sequence[tuple[str, int]] = (),
    ) -> None:
        self.transaction = transaction
        self.queue = queue
        self.group = group
        self.consumer = consumer
        self.shares = shares
        self.limit = limit
        self.lease_seconds = queue.policy.lease_seconds if lease_seconds is None else lease_seconds
        self.ends_at = transaction.now + microseconds(self.lease_seconds)
        self.token = 0
        self.rows: list[Row] = []
        self.has_retries = False
        self.has_skips = False

    def prepare(self, due: Due) -> None:
        """Promote due messages and retries, and reclaim lapsed leases."""
        transaction, queue, group = self.transaction, self.queue, self.group
        self.has_skips = bool(due.skips)
        if due.held:
            promotion.promote(transaction, queue, max(self.limit, promotion.AT_ONCE))
        if due.retries:
            promotion.make_ready(transaction, queue, group, max(self.limit, promotion.AT_ONCE))
        if due.lapsed:
            lapsed_leases.reclaim(transaction, queue, group)
        self.has_retries = bool(due.ready or due.retries or due.lapsed)
        if self.has_retries:
            lapsed_leases.expire_tracked(transaction, queue, group)

    def fill(self) -> None:
        if self.queue.policy.ordered:
            self._fill_in_order()
            return
        lanes = self._unread_lanes()
        if self.has_retries:
            self._fill_with_retries(lanes)
            return
        for lane in lanes:
            if len(self.rows) < self.limit:
                self._take_unread(lane, self.limit)

    def _fill_with_retries(self, lanes: list[UnreadLane]) -> None:
        retries = self._ready_retries()
        for priority in sorted({*retries, *(lane.priority for lane in lanes)}):
            for position in retries.get(priority, ())[: self.limit - len(self.rows)]:
                self.take_retry(position)
            for lane in lanes:
                if lane.priority == priority and len(self.rows) < self.limit:
                    self._take_unread(lane, self.limit)

    def _take_token(self) -> int:
        """One token for the whole receive. Tokens increase: each is greater than the tokens given out before for the
        same messages, than those this process knows of, and (because the clock advances) than those of other processes
        that a power cut may have undone."""
        if not self.token:
            self.token = self.transaction.tokens.next(self.transaction.now)
        return self.token

    def finish(self) -> None:
        if self.transaction.now - self.group.used_at > TOUCH_EVERY:
            used = {"group_id": self.group.group_id, "now": self.transaction.now}
            self.transaction.run("touch_group", used)

    # -- several consumers -----------------------------------------------------------------------------------------

    def _portions(self, count: int) -> list[tuple[str, int, int]]:
        """How the next `count` rows are divided: for each consumer the start and end of its share."""
        if len(self.shares) <= 1:
            return [(self.consumer, 0, count)]
        portions: list[tuple[str, int, int]] = []
        at, start, edge = len(self.rows), 0, 0
        for consumer, limit in self.shares:
            edge += limit
            end = min(edge - at, count)
            if end > start:
                portions.append((consumer, start, end))
                start = end
        return portions

    # -- retries ---------------------------------------------------------------------------------------------------

    def _ready_retries(self) -> dict[int, list[int]]:
        """Positions of ready retries, by priority."""
        rows = self.transaction.rows("ready_tracked", {"group_id": self.group.group_id, "limit": self.limit})
        by_priority: dict[int, list[int]] = {}
        for position, priority, token in rows:
            self.transaction.tokens.seen(token)
            by_priority.setdefault(priority, []).append(position)
        return by_priority

    def take_retry(self, position: int) -> None:
        group_id = self.group.group_id
        bindings = {"group_id": group_id, "position": position, "ends_at": self.ends_at}
        row = self.transaction.rows("read_tracked", bindings)[0]
        timing = Attempt(row[ATTEMPT], row[EXPIRES_AT], row[DEADLINE_AT])
        ends_at = lease_end(timing, self.transaction.now, self.lease_seconds)
        leased = {"group_id": group_id, "position": position, "ends_at": ends_at, "token": self._take_token()}
        for consumer, _, _ in self._portions(1):
            self.transaction.run("lease_tracked", {**leased, "consumer": consumer})
            self._record(position, row[ATTEMPT], consumer)
        self.rows.append((*row[:LEASE_ENDS_AT], ends_at))

    # -- unread messages -------------------------------------------------------------------------------------------

    def _unread_lanes(self) -> list[UnreadLane]:
        """Best priority first; within a priority in the order of this consumer's shards."""
        reader = (self.queue.queue_id, self.group.group_id, self.queue.trimmed_position)
        lanes = [UnreadLane(*row) for row in self.transaction.rows("unread_lanes", reader)]
        for lane in lanes:
            self.transaction.tokens.seen(lane.token)
        if self.queue.policy.shards > 1 and len(lanes) > 1:
            lanes.sort(key=self._ring().place)
        return lanes

    def _ring(self) -> _Ring:
        bindings = {"group_id": self.group.group_id, "name": self.consumer}
        place = self.transaction.row("consumer_place", bindings)
        shards = self.queue.policy.shards
        if place is None:
            return _Ring(int(self.transaction.random() * shards), 1, shards)
        return _Ring(place[0], place[1], shards)

    def _take_unread(self, lane: UnreadLane, most: int) -> None:
        room = min(most, self.limit - len(self.rows))
        apart: list[tuple[str, Row]] = []
        if lane.needs_checks or self.has_skips:
            rows, upto, count = self._read_checked(lane, room)
            if any([row[LEASE_ENDS_AT] != self.ends_at for row in rows]):
                leased, apart = self._leases_apart(rows)
            else:
                leased = self._leases(rows)
        else:
            rows = self._read(lane, room)
            upto, count = rows[-1][POSITION], len(rows)
            leased = self._leases(rows)
        self._lease(lane, leased)
        for consumer, row in apart:
            self._lease_singly(lane, consumer, row)
        self._move_cursor(lane, upto, lane.passed + count, leased)
        self.rows.extend(rows)

    def _leases(self, rows: list[Row]) -> list[Leased]:
        """The ranges of each consumer."""
        if not rows:
            return []
        portions, first = self._portions(len(rows)), rows[0][POSITION]
        if rows[-1][POSITION] - first + 1 == len(rows):
            return [(consumer, first + start, first + end - 1) for consumer, start, end in portions]
        leased: list[Leased] = []
        for consumer, start, end in portions:
            leased += [(consumer, *one) for one in contiguous_ranges(row[POSITION] for row in rows[start:end])]
        return leased

    def _leases_apart(self, rows: list[Row]) -> tuple[list[Leased], list[tuple[str, Row]]]:
        """The same, without the messages whose lease ends at a time of its own; and these."""
        leased: list[Leased] = []
        apart: list[tuple[str, Row]] = []
        for consumer, start, end in self._portions(len(rows)):
            piece = rows[start:end]
            together = [row[POSITION] for row in piece if row[LEASE_ENDS_AT] == self.ends_at]
            leased += [(consumer, *one) for one in contiguous_ranges(together)]
            apart += [(consumer, row) for row in piece if row[LEASE_ENDS_AT] != self.ends_at]
        return leased, apart

    def _read(self, lane: UnreadLane, room: int) -> list[Row]:
        """The next messages of a lane. Usually they are one run, which is read by a range of the primary key."""
        first, last = lane.next_first, lane.next_last
        if last - first + 1 >= room or last == lane.last_position:
            return self.transaction.rows("read_run", (lane.priority, self.ends_at, first, min(last, first + room - 1)))
        reading = {
            "priority": lane.priority,
            "ends_at": self.ends_at,
            "lane_id": lane.lane_id,
            "after": lane.position,
            "limit": room,
        }
        return self.transaction.rows("read_lane", reading)

    def _read_checked(self, lane: UnreadLane, room: int) -> tuple[list[Row], int, int]:
        """The next messages that have not expired, the position up to which the lane is read with them, and how many
        messages lie before it."""
        reading = self._reading(lane)
        rows = self.transaction.rows("read_lane_checked", {**reading, "limit": room})
        upto: int = rows[-1][POSITION] if len(rows) == room else lane.last_position
        if upto <= lane.next_last and upto - lane.next_first + 1 == len(rows):
            return rows, upto, len(rows)  # one run, with no message skipped
        counted = {"lane_id": lane.lane_id, "after": lane.position, "upto": upto}
        count: int = self.transaction.value("count_lane_messages", counted)
        for position, event in self.transaction.rows("ended_unread", {**reading, "upto": upto}):
            self._end_skipped(position, Event(event))
        passed = {
            "group_id": self.group.group_id,
            "lane_id": lane.lane_id,
            "first": lane.position + 1,
            "last": upto,
        }
        self.transaction.rows("remove_skips", passed)
        return rows, upto, count

    def _reading(self, lane: UnreadLane) -> dict[str, Any]:
        return {
            "lane_id": lane.lane_id,
            "after": lane.position,
            "now": self.transaction.now,
            "group_id": self.group.group_id,
            "at_most_once": int(self.queue.policy.at_most_once),
            "priority": lane.priority,
            "ends_at": self.ends_at,
        }

    def _end_skipped(self, position: int, event: Event) -> None:
        state = State.CANCELLED if event is Event.BATCH_CANCEL else State.EXPIRED
        step = audit.AuditStep(event, state, position, position, "system", reasons.OF_EVENT[event])
        is_primary = self.group.name == self.queue.policy.primary_group
        outcomes.end(self.transaction, self.queue, self.group, step, letter=is_primary)

    def _lease(self, lane: UnreadLane, leased: list[Leased]) -> None:
        """Lease ranges of the lane, with one statement per table."""
        if not leased:
            return
        token, group_id = self._take_token(), self.group.group_id
        rows = [(token, first, last, group_id, lane.lane_id, who, self.ends_at) for who, first, last in leased]
        if len(rows) == 1:
            self.transaction.run("make_lease", rows[0])
            who, first, last = leased[0]
            audit.record(self.transaction, self.queue.queue_id, group_id, self._step(first, last, 1, who))
            return
        self.transaction.run_many("make_lease", rows)
        first, last = leased[0][1], leased[-1][2]
        widths = [last - first + 1 for _, first, last in leased]
        if sum(widths) == last - first + 1 and max(widths) <= audit.MAX_SPAN:
            audit.record_leases(
                self.transaction, self.queue, self.group, Event.RECEIVE, State.LEASED, token, first, last
            )
        else:
            steps = [self._step(first, last, 1, who) for who, first, last in leased]
            audit.record_all(self.transaction, self.queue.queue_id, group_id, steps)

    def _lease_singly(self, lane: UnreadLane, consumer: str, row: Row) -> None:
        """Lease a message whose lease ends at a time of its own."""
        position, token, group_id = row[POSITION], self._take_token(), self.group.group_id
        lease = leases.LeaseRange(token, 0, 0, group_id, lane.lane_id, consumer, self.ends_at)
        flight = leases.flights(self.transaction, lease, position, position)[0]
        leases.track_leased(self.transaction, self.group, flight, row[LEASE_ENDS_AT])
        self._record(position, 1, consumer)

    def _move_cursor(self, lane: UnreadLane, upto: int, passed: int, leased: list[Leased]) -> None:
        moved = (self.group.group_id, lane.lane_id, upto, passed)
        if leased:
            self.transaction.run("lease_unread", (*moved, self.ends_at, self.token))
        else:
            self.transaction.run("move_cursor", moved)

    def _record(self, position: int, attempt: int, consumer: str) -> None:
        step = self._step(position, position, attempt, consumer)
        audit.record(self.transaction, self.queue.queue_id, self.group.group_id, step)

    def _step(self, first: int, last: int, attempt: int, consumer: str) -> audit.AuditStep:
        return audit.AuditStep(Event.RECEIVE, State.LEASED, first, last, consumer, None, attempt, self.token)

    # -- ordered queues --------------------------------------------------------------------------------------------

    def _fill_in_order(self) -> None:
        """At most one open lease per shard, in order of priority and position. Retries precede what was never handed
        out, whatever its priority, and block their shard while the first of them waits."""
        # Messages behind a failed one are released, which an at_most_once message must not be: lease one at a time.
        most = 1 if self.queue.policy.at_most_once else self.limit
        group = {"group_id": self.group.group_id}
        blocked = {shard for (shard,) in self.transaction.rows("blocked_shards", group)}
        waiting: dict[int, list[tuple[int, int, str]]] = {}
        passed: set[int] = set()
        turns: list[tuple[int, int, int, UnreadLane | None]] = []
        for position, priority, shard, state, token in self.transaction.rows("tracked_in_order", group):
            self.transaction.tokens.seen(token)
            waiting.setdefault(shard, []).append((priority, position, state))
            turns.append((priority, position, shard, None))
        turns.sort()
        turns += [(lane.priority, lane.last_position, lane.shard, lane) for lane in self._unread_lanes()]
        turns.sort(key=lambda turn: (turn[0], turn[3] is not None))
        for priority, position, shard, lane in turns:
            if shard in blocked or len(self.rows) >= self.limit:
                continue
            retries = waiting.get(shard)
            if lane is None:
                if not retries or retries[0] != (priority, position, State.READY):
                    continue
                self.take_retry(position)
                retries.pop(0)
            elif retries:
                unread = self._next_unread(lane)
                # A message that was redriven before it was read waits further on; what comes before it is not blocked.
                if unread is None or lane.priority > retries[0][0] or unread >= retries[0][1]:
                    passed.update(() if unread is None else (shard,))
                    continue
                self._take_unread(lane, 1)
                blocked.add(shard)
            elif shard in passed:
                continue  # what a better priority has waits for the retries, and must not be overtaken meanwhile
            else:
                self._take_unread(lane, most)
            if most == 1:
                blocked.add(shard)

    def _next_unread(self, lane: UnreadLane) -> int | None:
        rows = self.transaction.rows("read_lane_checked", {**self._reading(lane), "limit": 1})
        return rows[0][POSITION] if rows else None


class _Ring(NamedTuple):
    """The order of shards for a consumer, within each priority: its own first, then the following ones."""

    birth: int
    living: int
    shards: int

    def place(self, lane: UnreadLane) -> tuple[int, bool, int]:
        is_home = lane.shard % self.living == self.birth % self.living
        return lane.priority, not is_home, (lane.shard - self.birth) % self.shards
