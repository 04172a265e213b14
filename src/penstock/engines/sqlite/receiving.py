"""ready -> leased: handing messages out.

A receive looks at what is due first, then fills up: best priority first, within a priority due retries before unread
messages. Unread messages are taken in a row from where the group's cursor stands in a lane, and leased as one range.
A lane that ever had messages with an expiry, a deadline or a batch is read carefully: what is over is passed and
written down as ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.domain.lifecycle import Event, State
from penstock.domain.settlement import Attempt, lease_end
from penstock.domain.times import SECOND, microseconds
from penstock.engines.contract import (
    ATTEMPT,
    DEADLINE_AT,
    EXPIRES_AT,
    LEASE_ENDS_AT,
    POSITION,
    Receipt,
    Row,
)
from penstock.engines.sqlite import ending, promoting, queues, reclaiming, tracking
from penstock.engines.sqlite.queues import Group, Queue
from penstock.engines.sqlite.ranges import ranges
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/receive.sql")
TOUCH_EVERY = 10 * SECOND
# Messages in a row that one consumer gets: who, from where, up to where.
Leased = tuple[str, int, int]


class Lane(NamedTuple):
    """A lane that has unread messages, and how far the group has read it."""

    lane_id: int
    priority: int
    shard: int
    careful: int
    last_position: int
    position: int
    passed: int
    next_first: int
    next_last: int
    token: int


class Due(NamedTuple):
    """What a receive has to see to before it takes messages."""

    held: int
    retries: int
    lapsed: int
    ready: int
    skips: int


NOTHING_DUE = Due(0, 0, 0, 0, 0)


class Opening(NamedTuple):
    """Where a receive reads, and what it finds there."""

    queue: Queue
    group: Group
    due: Due


def begin(transaction: Transaction, name: str, group_name: str | None, needs_group: bool) -> Opening:
    """Queue and group are made by their first use, unless they have to be there."""
    row = transaction.row(SQL.open_receive, (name, group_name, transaction.now))
    if needs_group and (row is None or row[7] is None):
        queue = queues.get(transaction, name)
        queues.get_group(transaction, queue, group_name or queue.policy.default_group)
    queue = queues.ensure(transaction, name) if row is None else queues.from_row(row[:7])
    if row is None or row[7] is None:
        group = queues.ensure_group(transaction, queue, group_name or queue.policy.default_group)
        held = row is not None and row[13]
        return Opening(queue, group, NOTHING_DUE._replace(held=int(held)))
    return Opening(queue, queues.group_from_row(row[7:13]), Due(*row[13:]))


def receive(
    transaction: Transaction, opening: Opening, consumer: str, limit: int, lease_seconds: float | None
) -> Receipt:
    queue, group, due = opening
    queues.check_leasing(queue, group)
    receive = _Receive(transaction, queue, group, consumer, limit, lease_seconds)
    if not queue.policy.paused:
        receive.prepare(due)
        receive.fill()
        receive.finish()
    return Receipt(receive.token, queue.name, group.name, consumer, transaction.salt, receive.rows)


def receive_each(
    transaction: Transaction, opening: Opening, shares: Sequence[tuple[str, int]], lease_seconds: float | None
) -> list[Receipt]:
    """One receive for several consumers. In an ordered queue each has its own, because a lease may hold several
    messages of a key, which must not be worked on side by side."""
    queue, group, due = opening
    if queue.policy.ordered:
        return [receive(transaction, opening, consumer, limit, lease_seconds) for consumer, limit in shares]
    queues.check_leasing(queue, group)
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
    transaction: Transaction, queue: Queue, group: Group, consumer: str, positions: list[int], lease_seconds: float
) -> Receipt:
    """Messages that are ready again, each by its position."""
    receive = _Receive(transaction, queue, group, consumer, len(positions), lease_seconds)
    for position in positions:
        receive.take_retry(position)
    return Receipt(receive.token, queue.name, group.name, consumer, transaction.salt, receive.rows)


class _Receive:
    def __init__(
        self,
        transaction: Transaction,
        queue: Queue,
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

    @property
    def room(self) -> int:
        return self.limit - len(self.rows)

    def prepare(self, due: Due) -> None:
        """Make ready what is due, reclaim what has lapsed."""
        transaction, queue, group = self.transaction, self.queue, self.group
        self.has_skips = bool(due.skips)
        if due.held:
            promoting.promote(transaction, queue, max(self.limit, promoting.AT_ONCE))
        if due.retries:
            promoting.make_ready(transaction, queue, group, max(self.limit, promoting.AT_ONCE))
        if due.lapsed:
            reclaiming.reclaim(transaction, queue, group)
        self.has_retries = bool(due.ready or due.retries or due.lapsed)
        if self.has_retries:
            reclaiming.expire_tracked(transaction, queue, group)

    def fill(self) -> None:
        if self.queue.policy.ordered:
            self._fill_in_order()
            return
        lanes = self._unread_lanes()
        if self.has_retries:
            self._fill_with_retries(lanes)
            return
        for lane in lanes:
            if self.room > 0:
                self._take_unread(lane, self.limit)

    def _fill_with_retries(self, lanes: list[Lane]) -> None:
        retries = self._ready_retries()
        for priority in sorted({*retries, *(lane.priority for lane in lanes)}):
            for position in retries.get(priority, ())[: self.room]:
                self.take_retry(position)
            for lane in lanes:
                if lane.priority == priority and self.room > 0:
                    self._take_unread(lane, self.limit)

    def _take_token(self) -> int:
        """One for the whole receive. Later tokens are greater: than those given out for the same messages, than those
        this process knows of, and (because time moves on) than those that others gave out and a power cut may have
        undone."""
        if not self.token:
            self.token = self.transaction.tokens.next(self.transaction.now)
        return self.token

    def finish(self) -> None:
        if self.transaction.now - self.group.used_at > TOUCH_EVERY:
            used = {"group_id": self.group.group_id, "now": self.transaction.now}
            self.transaction.run(SQL.touch_group, used)

    # -- several consumers -----------------------------------------------------------------------------------------

    def _portions(self, count: int) -> list[tuple[str, int, int]]:
        """Whose the next `count` rows are: a consumer, and from where up to where it gets them."""
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
        """Positions of ready retries by priority."""
        rows = self.transaction.rows(SQL.ready_tracked, {"group_id": self.group.group_id, "limit": self.limit})
        by_priority: dict[int, list[int]] = {}
        for position, priority, token in rows:
            self.transaction.tokens.seen(token)
            by_priority.setdefault(priority, []).append(position)
        return by_priority

    def take_retry(self, position: int) -> None:
        group_id = self.group.group_id
        bindings = {"group_id": group_id, "position": position, "ends_at": self.ends_at}
        row = self.transaction.rows(SQL.read_tracked, bindings)[0]
        timing = Attempt(row[ATTEMPT], row[EXPIRES_AT], row[DEADLINE_AT])
        ends_at = lease_end(timing, self.transaction.now, self.lease_seconds)
        leased = {"group_id": group_id, "position": position, "ends_at": ends_at, "token": self._take_token()}
        for consumer, _, _ in self._portions(1):
            self.transaction.run(tracking.SQL.lease_tracked, {**leased, "consumer": consumer})
            self._record(position, row[ATTEMPT], consumer)
        self.rows.append((*row[:LEASE_ENDS_AT], ends_at))

    # -- unread messages -------------------------------------------------------------------------------------------

    def _unread_lanes(self) -> list[Lane]:
        """Best priority first, each priority in the order in which this consumer goes around its shards."""
        reader = (self.queue.queue_id, self.group.group_id, self.queue.trimmed_position)
        lanes = [Lane(*row) for row in self.transaction.rows(SQL.unread_lanes, reader)]
        for lane in lanes:
            self.transaction.tokens.seen(lane.token)
        if self.queue.policy.shards > 1 and len(lanes) > 1:
            lanes.sort(key=self._ring().place)
        return lanes

    def _ring(self) -> _Ring:
        bindings = {"group_id": self.group.group_id, "name": self.consumer}
        place = self.transaction.row(SQL.home, bindings)
        shards = self.queue.policy.shards
        if place is None:
            return _Ring(int(self.transaction.random() * shards), 1, shards)
        return _Ring(place[0], place[1], shards)

    def _take_unread(self, lane: Lane, most: int) -> None:
        room = min(most, self.room)
        if lane.careful or self.has_skips:
            self._take_carefully(lane, room)
            return
        rows = self._read(lane, room)
        first, last = rows[0][POSITION], rows[-1][POSITION]
        portions = self._portions(len(rows))
        leased: list[Leased] = []
        if last - first + 1 == len(rows):
            leased = [(consumer, first + start, first + end - 1) for consumer, start, end in portions]
        else:
            for consumer, start, end in portions:
                leased += [(consumer, *stretch) for stretch in ranges(row[POSITION] for row in rows[start:end])]
        self._lease(lane, leased)
        self._move_cursor(lane, last, lane.passed + len(rows), leased)
        self.rows.extend(rows)

    def _take_carefully(self, lane: Lane, room: int) -> None:
        rows, upto, count = self._read_carefully(lane, room)
        leased: list[Leased] = []
        apart: list[tuple[str, Row]] = []
        for consumer, start, end in self._portions(len(rows)):
            piece = rows[start:end]
            together = [row[POSITION] for row in piece if row[LEASE_ENDS_AT] == self.ends_at]
            leased += [(consumer, *stretch) for stretch in ranges(together)]
            if len(together) < len(piece):
                apart += [(consumer, row) for row in piece if row[LEASE_ENDS_AT] != self.ends_at]
        self._lease(lane, leased)
        self._lease_apart(lane, apart)
        self._move_cursor(lane, upto, lane.passed + count, leased)
        self.rows.extend(rows)

    def _read(self, lane: Lane, room: int) -> list[Row]:
        """The next messages of a lane. Mostly they are one stretch of the log, which is read fastest as such."""
        first, last = lane.next_first, lane.next_last
        if last - first + 1 >= room or last == lane.last_position:
            return self.transaction.rows(
                SQL.read_run, (lane.priority, self.ends_at, first, min(last, first + room - 1))
            )
        reading = {
            "priority": lane.priority,
            "ends_at": self.ends_at,
            "lane_id": lane.lane_id,
            "after": lane.position,
            "limit": room,
        }
        return self.transaction.rows(SQL.read_lane, reading)

    def _read_carefully(self, lane: Lane, room: int) -> tuple[list[Row], int, int]:
        """The next messages that are not over, up to where the lane is read with them, and how many lie before that."""
        reading = self._reading(lane)
        rows = self.transaction.rows(SQL.read_lane_carefully, {**reading, "limit": room})
        upto: int = rows[-1][POSITION] if len(rows) == room else lane.last_position
        if upto <= lane.next_last and upto - lane.next_first + 1 == len(rows):
            return rows, upto, len(rows)  # one stretch of the log, and nothing of it was passed over
        counted = {"lane_id": lane.lane_id, "after": lane.position, "upto": upto}
        count: int = self.transaction.value(SQL.count_run, counted)
        for position, event in self.transaction.rows(SQL.passed_over, {**reading, "upto": upto}):
            self._pass_over(position, Event(event))
        passed = {
            "group_id": self.group.group_id,
            "lane_id": lane.lane_id,
            "first": lane.position + 1,
            "last": upto,
        }
        self.transaction.rows(tracking.SQL.unskip, passed)
        return rows, upto, count

    def _reading(self, lane: Lane) -> dict[str, Any]:
        return {
            "lane_id": lane.lane_id,
            "after": lane.position,
            "now": self.transaction.now,
            "group_id": self.group.group_id,
            "at_most_once": int(self.queue.policy.at_most_once),
            "priority": lane.priority,
            "ends_at": self.ends_at,
        }

    def _pass_over(self, position: int, event: Event) -> None:
        state = State.CANCELLED if event is Event.BATCH_CANCEL else State.EXPIRED
        step = ending.Step(event, state, position, position, "system", ending.REASONS[event])
        is_primary = self.group.name == self.queue.policy.primary_group
        ending.end(self.transaction, self.queue, self.group, step, letter=is_primary)

    def _lease(self, lane: Lane, leased: list[Leased]) -> None:
        """Several stretches of the lane, by one statement for each table."""
        if not leased:
            return
        token, group_id = self._take_token(), self.group.group_id
        rows = [(token, first, last, group_id, lane.lane_id, who, self.ends_at) for who, first, last in leased]
        if len(rows) == 1:
            self.transaction.run(tracking.SQL.make_lease, rows[0])
            who, first, last = leased[0]
            ending.record(self.transaction, self.queue.queue_id, group_id, self._step(first, last, 1, who))
            return
        self.transaction.run_many(tracking.SQL.make_lease, rows)
        first, last = leased[0][1], leased[-1][2]
        widths = [last - first + 1 for _, first, last in leased]
        if sum(widths) == last - first + 1 and max(widths) <= ending.MAX_SPAN:
            ending.record_leases(
                self.transaction, self.queue, self.group, Event.RECEIVE, State.LEASED, token, first, last
            )
        else:
            steps = [self._step(first, last, 1, who) for who, first, last in leased]
            ending.record_all(self.transaction, self.queue.queue_id, group_id, steps)

    def _lease_apart(self, lane: Lane, apart: list[tuple[str, Row]]) -> None:
        """Messages whose lease ends at a time of their own."""
        for consumer, row in apart:
            position = row[POSITION]
            token, group_id = self._take_token(), self.group.group_id
            lease = tracking.Lease(token, 0, 0, group_id, lane.lane_id, consumer, self.ends_at)
            flight = tracking.flights(self.transaction, lease, position, position)[0]
            tracking.track_leased(self.transaction, self.group, flight, row[LEASE_ENDS_AT])
            self._record(position, 1, consumer)

    def _move_cursor(self, lane: Lane, upto: int, passed: int, leased: list[Leased]) -> None:
        moved = (self.group.group_id, lane.lane_id, upto, passed)
        if leased:
            self.transaction.run(SQL.lease_unread, (*moved, self.ends_at, self.token))
        else:
            self.transaction.run(SQL.move_cursor, moved)

    def _record(self, position: int, attempt: int, consumer: str) -> None:
        step = self._step(position, position, attempt, consumer)
        ending.record(self.transaction, self.queue.queue_id, self.group.group_id, step)

    def _step(self, first: int, last: int, attempt: int, consumer: str) -> ending.Step:
        return ending.Step(Event.RECEIVE, State.LEASED, first, last, consumer, None, attempt, self.token)

    # -- ordered queues --------------------------------------------------------------------------------------------

    def _fill_in_order(self) -> None:
        """One open lease per shard. A retry goes before what follows it, and while it waits its shard waits too."""
        # What is handed out behind a failure is released, which an at_most_once message must not be: one at a time.
        most = 1 if self.queue.policy.at_most_once else self.limit
        group = {"group_id": self.group.group_id}
        blocked = {shard for (shard,) in self.transaction.rows(SQL.blocked_shards, group)}
        waiting: dict[int, list[tuple[int, str]]] = {}
        turns: list[tuple[int, int, int, Lane | None]] = []
        for position, priority, shard, state, token in self.transaction.rows(SQL.tracked_in_order, group):
            self.transaction.tokens.seen(token)
            waiting.setdefault(shard, []).append((position, state))
            turns.append((priority, position, shard, None))
        turns.sort()
        turns += [(lane.priority, lane.last_position, lane.shard, lane) for lane in self._unread_lanes()]
        turns.sort(key=lambda turn: (turn[0], turn[3] is not None))
        for _, position, shard, lane in turns:
            if shard in blocked or self.room <= 0:
                continue
            retries = waiting.get(shard)
            if lane is not None and not retries:
                self._take_unread(lane, most)
            elif lane is not None and retries and self._is_unread_before(lane, retries[0][0]):
                # A message redriven before it was ever read waits further on: what comes before it is free.
                self._take_unread(lane, 1)
                blocked.add(shard)
            elif lane is None and retries and retries[0] == (position, State.READY):
                self.take_retry(position)
                retries.pop(0)
            else:
                continue
            if most == 1:
                blocked.add(shard)

    def _is_unread_before(self, lane: Lane, position: int) -> bool:
        if lane.next_first >= position:
            return False
        rows = self.transaction.rows(SQL.read_lane_carefully, {**self._reading(lane), "limit": 1})
        return bool(rows) and rows[0][POSITION] < position


class _Ring(NamedTuple):
    """The order in which a consumer goes around the shards of each priority: its own first, then on from there."""

    birth: int
    living: int
    shards: int

    def place(self, lane: Lane) -> tuple[int, bool, int]:
        is_home = lane.shard % self.living == self.birth % self.living
        return lane.priority, not is_home, (lane.shard - self.birth) % self.shards
