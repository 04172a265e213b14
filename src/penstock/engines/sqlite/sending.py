"""(new) -> ready or held: putting messages in.

Plain messages (nothing but a payload) take the short way: one statement for all of them, and nothing else per message.
Everything else becomes a `Record`, which is held or appended. The one log of the store is written in the order of
commits, because SQLite has one writer; each lane remembers which stretches of it are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import NamedTuple

import apsw

from penstock.domain.errors import DuplicateAddress, InvalidInput
from penstock.domain.identity import made_id, made_ids, position_of, random_id
from penstock.domain.message import PLAIN, Draft, Options, check_size
from penstock.domain.names import shown
from penstock.domain.policy import Policy
from penstock.domain.times import microseconds
from penstock.engines.sqlite import batches, queues
from penstock.engines.sqlite.connection import SQL as CONNECTION
from penstock.engines.sqlite.queues import Queue
from penstock.engines.sqlite.transaction import Transaction
from penstock.engines.statements import Statements

SQL = Statements("penstock.engines.sqlite", "sql/send.sql")
# Priorities of messages that ended while held; see the lane table.
WITHDRAWN = -1


class Record(NamedTuple):
    """A message as the tables have it."""

    created_at: int
    id: str | None
    content_type: str | None
    headers: str | None
    expires_at: int | None
    deadline_at: int | None
    address: str | None
    key: str | None
    batch_id: int | None
    created_by: str | None
    available_at: int | None
    payload: bytes


def send(transaction: Transaction, name: str, drafts: Sequence[Draft]) -> list[str]:
    row = transaction.row(SQL.open_send, (name,))
    queue, lane_id = (queues.ensure(transaction, name), None) if row is None else (queues.from_row(row[:7]), row[7])
    check_size(max([draft[0] for draft in drafts], key=len), queue.policy.max_payload_bytes)
    return put(transaction, queue, drafts, lane_id)


def put(transaction: Transaction, queue: Queue, drafts: Sequence[Draft], lane_id: int | None = None) -> list[str]:
    """Send what was found small enough before. `lane_id` is the queue's first lane, when it is known."""
    queues.ensure_primary(transaction, queue)
    policy = queue.policy
    if policy.delay_seconds == 0:
        # Lists, not generators: they cost half, and this is run for every message.
        if is_plainly_sent(policy) and all([options is PLAIN or options == PLAIN for _, _, options in drafts]):
            return _send_plain(transaction, _plain_lane(transaction, queue, lane_id), drafts)
        kinds = {id(options): options for _, _, options in drafts}.values()
        if not policy.ordered and all(_is_timed(options) for options in kinds):
            return _send_timed(transaction, _plain_lane(transaction, queue, lane_id), drafts)
    return _Send(transaction, queue).send(drafts)


def is_plainly_sent(policy: Policy) -> bool:
    """Whether a message that is nothing but a payload needs no more than a row of the log."""
    return policy.delay_seconds == 0 and policy.ttl_seconds is None


def _plain_lane(transaction: Transaction, queue: Queue, first_lane_id: int | None) -> int:
    """Where messages without priority and key go."""
    if first_lane_id is not None and queue.policy.shards == 1:
        return first_lane_id
    return find_lane(transaction, queue.queue_id, 0, any_shard(transaction, queue.policy))


def _is_timed(options: Options) -> bool:
    """Nothing but a time to live, so that it needs no more than a plain message."""
    return options.ttl_seconds is not None and options == Options(ttl_seconds=options.ttl_seconds)


def _send_timed(transaction: Transaction, lane_id: int, drafts: Sequence[Draft]) -> list[str]:
    now = transaction.now
    ends = [now + microseconds(options.ttl_seconds or 0) for _, _, options in drafts]
    first, last = take_positions(transaction, len(drafts))
    _append_many(transaction, first, lane_id, drafts, ends)
    add_run(transaction, lane_id, first, last, careful=True)
    return made_ids(now, transaction.salt, first, last)


def _send_plain(transaction: Transaction, lane_id: int, drafts: Sequence[Draft]) -> list[str]:
    now = transaction.now
    first, last = take_positions(transaction, len(drafts))
    if first == last:
        payload, content_type, _ = drafts[0]
        transaction.run(SQL.append_plain, (first, lane_id, now, content_type, None, payload))
    else:
        _append_many(transaction, first, lane_id, drafts, [None] * len(drafts))
    add_run(transaction, lane_id, first, last, careful=False)
    return made_ids(now, transaction.salt, first, last)


def _append_many(
    transaction: Transaction, first: int, lane_id: int, drafts: Sequence[Draft], ends: Sequence[int | None]
) -> None:
    """Most often they differ in nothing but their payload: then it is one statement, which costs a third."""
    payloads, types, _ = zip(*drafts, strict=True)
    if types.count(types[0]) == len(types) and ends.count(ends[0]) == len(ends):
        alike = (first - 1, lane_id, transaction.now, types[0], ends[0], apsw.carray(payloads))
        transaction.run(SQL.append_alike, alike)
    else:
        positions = range(first, first + len(drafts))
        rows = zip(positions, repeat(lane_id), repeat(transaction.now), types, ends, payloads)
        transaction.run_many(SQL.append_plain, rows)


class _Send:
    """One send of messages with options: which are held, which are appended, and to which lanes."""

    def __init__(self, transaction: Transaction, queue: Queue) -> None:
        self.transaction = transaction
        self.queue = queue
        self.shard = any_shard(transaction, queue.policy)
        self.lanes: dict[tuple[int, int], list[tuple[int, Record]]] = {}
        self.ids: list[str] = []
        self.chosen: set[str] = set()
        self.addresses: dict[str, str | None] = {}
        self.batches: dict[tuple[str, int | None], batches.Batch] = {}
        self.members: dict[int, int] = {}

    def send(self, drafts: Sequence[Draft]) -> list[str]:
        self.ids = [""] * len(drafts)
        for place, draft in enumerate(drafts):
            self._place(place, draft)
        for (priority, shard), records in self.lanes.items():
            self._append(priority, shard, records)
        for batch_id, count in self.members.items():
            self.transaction.run(SQL.count_members, {"batch_id": batch_id, "count": count})
        return self.ids

    def _place(self, place: int, draft: Draft) -> None:
        payload, content_type, options = draft
        if options.id is not None:
            self.ids[place] = options.id
            if options.id in self.chosen or self._exists(options.id):
                return
            self.chosen.add(options.id)
        batch = self._batch(options)
        self._check_address(options)
        record = self._record(payload, content_type, options, None if batch is None else batch.batch_id)
        if record.deadline_at is not None and record.deadline_at <= self.transaction.now:
            queues.look_back(self.transaction, self.queue.queue_id, None, record.deadline_at - 1)
        shard = shard_of(options.key, self.queue.policy, self.shard)
        waiting = batch is not None and batch.state == "open"
        if waiting or (record.available_at or 0) > self.transaction.now:
            self.ids[place] = self._hold(options.priority, shard, record, waiting)
        else:
            self.lanes.setdefault((options.priority, shard), []).append((place, record._replace(available_at=None)))

    def _exists(self, message_id: str) -> bool:
        return locate(self.transaction, self.queue, message_id) is not None

    def _check_address(self, options: Options) -> None:
        address = options.address
        if address is None:
            return
        if self.queue.policy.primary_group is None:
            raise InvalidInput(f"queue {self.queue.name!r} has no primary group: address {shown(address)} has no owner")
        existing = self.addresses.get(address) or self._live_at(address)
        if address in self.addresses or existing is not None:
            raise DuplicateAddress(
                f"address {shown(address)} of queue {self.queue.name!r} already has the live message {existing}",
                existing or "",
            )
        self.addresses[address] = options.id

    def _live_at(self, address: str) -> str | None:
        row = self.transaction.row(SQL.find_address, {"queue_id": self.queue.queue_id, "address": address})
        if row is None or row[2] is not None:
            return None
        message_id, position, _, _ = row
        holder = {"queue_id": self.queue.queue_id, "id": message_id, "position": position, "now": self.transaction.now}
        primary = queues.primary(self.transaction, self.queue)
        holder["group_id"] = None if primary is None else primary.group_id
        return None if self.transaction.value(SQL.is_over, holder) else message_id

    def _batch(self, options: Options) -> batches.Batch | None:
        if options.batch is None:
            return None
        meant = (options.batch, options.batch_after)
        batch = self.batches.get(meant)
        if batch is None:
            batch = self.batches[meant] = batches.joined(self.transaction, self.queue, *meant)
        self.members[batch.batch_id] = self.members.get(batch.batch_id, 0) + 1
        return batch

    def _record(self, payload: bytes, content_type: str | None, options: Options, batch_id: int | None) -> Record:
        now, policy = self.transaction.now, self.queue.policy
        delay = policy.delay_seconds if options.delay_seconds is None else options.delay_seconds
        ttl = policy.ttl_seconds if options.ttl_seconds is None else options.ttl_seconds
        return Record(
            created_at=now,
            id=options.id,
            content_type=content_type,
            headers=options.headers,
            expires_at=None if ttl is None else now + microseconds(ttl),
            deadline_at=options.deadline_at,
            address=options.address,
            key=options.key,
            batch_id=batch_id,
            created_by=options.created_by,
            available_at=now + microseconds(delay),
            payload=payload,
        )

    def _hold(self, priority: int, shard: int, record: Record, waiting: bool) -> str:
        transaction, queue_id = self.transaction, self.queue.queue_id
        # Two halves, because the injected source of randomness gives 53 bits at a time.
        bits = int(transaction.random() * (1 << 37)) << 37 | int(transaction.random() * (1 << 37))
        message_id = record.id or random_id(transaction.now, bits)
        held_id = transaction.value(
            SQL.hold,
            (
                queue_id, priority, shard, record.available_at, int(waiting), message_id, record.created_at,
                record.content_type, record.headers, record.expires_at, record.deadline_at, record.address, record.key,
                record.batch_id, record.created_by, record.payload,
            ),
        )  # fmt: skip
        transaction.run(queues.SQL.count_held, {"queue_id": queue_id, "change": 1})
        identify(transaction, queue_id, message_id, None, held_id)
        self._take_address(record, message_id, None)
        return message_id

    def _append(self, priority: int, shard: int, placed: list[tuple[int, Record]]) -> None:
        transaction, queue_id = self.transaction, self.queue.queue_id
        first = append(transaction, queue_id, priority, shard, [record for _, record in placed])
        for position, (place, record) in enumerate(placed, first):
            message_id = record.id or made_id(record.created_at, transaction.salt, position)
            self.ids[place] = message_id
            if record.id is not None:
                identify(transaction, queue_id, message_id, position, None)
            self._take_address(record, message_id, position)
            if record.batch_id is not None:
                transaction.run(SQL.join_batch, {"position": position, "batch_id": record.batch_id})

    def _take_address(self, record: Record, message_id: str, position: int | None) -> None:
        if record.address is not None:
            take_address(self.transaction, self.queue.queue_id, record.address, message_id, position)


def append(transaction: Transaction, queue_id: int, priority: int, shard: int, records: Sequence[Record]) -> int:
    """Write records at the end of the log, in a row; the position of the first. Positions are taken by being used."""
    lane_id = find_lane(transaction, queue_id, priority, shard)
    first, last = take_positions(transaction, len(records))
    rows = [(position, lane_id, *record) for position, record in enumerate(records, first)]
    transaction.run_many(SQL.append, rows)
    careful = any(
        record.expires_at or record.deadline_at or record.batch_id or record.address is not None for record in records
    )
    add_run(transaction, lane_id, first, last, careful)
    return first


def take_positions(transaction: Transaction, count: int) -> tuple[int, int]:
    last: int = transaction.value(CONNECTION.last_position)
    return last + 1, last + count


def find_lane(transaction: Transaction, queue_id: int, priority: int, shard: int) -> int:
    bindings = {"queue_id": queue_id, "priority": priority, "shard": shard}
    lane_id: int | None = transaction.value(SQL.find_lane, bindings)
    return transaction.value(SQL.make_lane, bindings) if lane_id is None else lane_id


def add_run(transaction: Transaction, lane_id: int, first: int, last: int, careful: bool) -> None:
    if not transaction.changes(SQL.lengthen_run, (last, lane_id, first - 1)):
        transaction.run(SQL.begin_run, {"lane_id": lane_id, "first": first, "last": last})
    if careful:
        transaction.run(SQL.be_careful, {"lane_id": lane_id})


def identify(
    transaction: Transaction, queue_id: int, message_id: str, position: int | None, held_id: int | None
) -> None:
    bindings = {"queue_id": queue_id, "id": message_id, "position": position, "held_id": held_id}
    transaction.run(SQL.identify, bindings)


def take_address(transaction: Transaction, queue_id: int, address: str, message_id: str, position: int | None) -> None:
    bindings = {"queue_id": queue_id, "address": address, "id": message_id, "position": position}
    transaction.run(SQL.take_address, bindings)


class Place(NamedTuple):
    """Where a message is: at a position of the log, or held."""

    position: int | None
    held_id: int | None


def locate(transaction: Transaction, queue: Queue, message_id: str) -> Place | None:
    position = position_of(message_id)
    created_at = transaction.value(SQL.find_made, {"position": position, "queue_id": queue.queue_id})
    if created_at is not None and made_id(created_at, transaction.salt, position) == message_id:
        return Place(position, None)
    row = transaction.row(SQL.find_identity, {"queue_id": queue.queue_id, "id": message_id})
    return None if row is None else Place(*row)


def any_shard(transaction: Transaction, policy: Policy) -> int:
    """Messages without a key go together, so that their stretch of the log stays in one piece."""
    if policy.shards == 1:
        return 0
    return shard_of(None, policy, int(transaction.random() * policy.shards))


def shard_of(key: str | None, policy: Policy, otherwise: int) -> int:
    """A key always has the same shard; in an ordered queue messages without a key count as one key."""
    if key is None and not policy.ordered:
        return otherwise
    return policy.shard_of(key)
