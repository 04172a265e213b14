"""(new) -> ready or held: sending.

Plain messages (nothing but a payload) take a short path: one statement for all of them and no work per message. Other
messages become a `Record`, which is held or appended. Positions become visible in the order of commits; each lane
records which runs of positions are its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, repeat
from operator import itemgetter
from typing import Any

from penstock.domain import refusals
from penstock.domain.identity import made_id, made_ids, random_id
from penstock.domain.message import PLAIN, Draft, Options, check_size
from penstock.domain.policy import Policy
from penstock.domain.timestamps import microseconds
from penstock.engines.positional import addresses, batches, log, queues
from penstock.engines.positional.database import Transaction
from penstock.engines.positional.queues import StoredQueue


def send(transaction: Transaction, name: str, drafts: Sequence[Draft]) -> list[str]:
    row = transaction.row("open_send", (name,))
    queue, lane_id = (queues.ensure(transaction, name), None) if row is None else (queues.from_row(row[:7]), row[7])
    check_size(max(map(_payload_of, drafts), key=len), queue.policy.max_payload_bytes)
    return put(transaction, queue, drafts, lane_id)


def put(transaction: Transaction, queue: StoredQueue, drafts: Sequence[Draft], lane_id: int | None = None) -> list[str]:
    """Send drafts whose size was checked. `lane_id` is the queue's first lane, when it is known."""
    queues.ensure_primary(transaction, queue)
    policy, count = queue.policy, len(drafts)
    options = list(map(_options_of, drafts))
    plain = options.count(PLAIN) if is_plainly_sent(policy) else 0
    if plain == count:
        return _send_spread(transaction, queue, lane_id, drafts, is_timed=False)
    if 0 < plain == count - 1 and options[0] != PLAIN:
        # Only the first has options, as in the batches of a producer: the others keep the short path.
        first = _Send(transaction, queue).send(drafts[:1])
        return first + _send_spread(transaction, queue, lane_id, drafts[1:], is_timed=False)
    # Most messages share their options with others.
    kinds = dict(zip(map(id, options), options, strict=True)).values()
    if policy.delay_seconds == 0 and not policy.ordered and all(map(_is_timed, kinds)):
        return _send_spread(transaction, queue, lane_id, drafts, is_timed=True)
    return _Send(transaction, queue).send(drafts)


_payload_of, _options_of = itemgetter(0), itemgetter(2)


def is_plainly_sent(policy: Policy) -> bool:
    """Whether a plain message needs no more than a row of the log."""
    return policy.delay_seconds == 0 and policy.ttl_seconds is None


def _is_timed(options: Options) -> bool:
    """Whether a time to live is the only option."""
    return options.ttl_seconds is not None and options == Options(ttl_seconds=options.ttl_seconds)


def _send_spread(
    transaction: Transaction, queue: StoredQueue, first_lane_id: int | None, drafts: Sequence[Draft], is_timed: bool
) -> list[str]:
    """Messages without priority and key: to the only shard, or a share of them to each."""
    policy, count = queue.policy, len(drafts)
    if first_lane_id is not None and policy.shards == 1:
        return _append(transaction, queue.queue_id, first_lane_id, drafts, is_timed)
    first = log.any_shard(transaction, policy)
    parts = 1 if policy.ordered else min(policy.shards, count)
    # The boundaries of `Policy.shard_among`.
    starts = [-(-part * count // parts) for part in range(parts + 1)]
    ids: list[str] = []
    for start, end in pairwise(starts):
        shard = first if policy.ordered else policy.shard_among(first, start, count)
        lane_id = log.find_lane(transaction, queue.queue_id, 0, shard)
        ids += _append(transaction, queue.queue_id, lane_id, drafts[start:end], is_timed)
    return ids


def _append(
    transaction: Transaction, queue_id: int, lane_id: int, drafts: Sequence[Draft], is_timed: bool
) -> list[str]:
    """Messages that have no options, or a time to live only."""
    now, count = transaction.now, len(drafts)
    first = transaction.take_positions(queue_id, count)
    last = first + count - 1
    payloads, types, options = zip(*drafts, strict=True)
    ends: list[int | None] = [None] * count
    if is_timed:
        ends = [now + microseconds(one.ttl_seconds or 0) for one in options]
    if count == 1:
        transaction.run("append_plain", (first, lane_id, now, types[0], ends[0], payloads[0]))
    elif types.count(types[0]) == ends.count(ends[0]) == count:
        # Usually they differ only in their payload: then one bulk append, at a third of the cost.
        transaction.append_payloads(first, lane_id, types[0], ends[0], payloads)
    else:
        rows = zip(range(first, last + 1), repeat(lane_id), repeat(now), types, ends, payloads)
        transaction.run_many("append_plain", rows)
    log.add_run(transaction, lane_id, first, last, needs_checks=is_timed)
    return made_ids(now, transaction.salt, first, last)


class _Send:
    """One send of messages with options: which are held, which appended, and to which lanes."""

    def __init__(self, transaction: Transaction, queue: StoredQueue) -> None:
        self.transaction = transaction
        self.queue = queue
        self.shard = log.any_shard(transaction, queue.policy)
        self.lanes: dict[tuple[int, int], list[tuple[int, log.Record]]] = {}
        self.ids: list[str] = []
        self.existing: set[str] = set()
        self.held: list[tuple[Any, ...]] = []
        self.addresses: dict[str, str | None] = {}
        self.batches: dict[tuple[str, int | None, str | None], batches.StoredBatch] = {}
        self.members: dict[int, int] = {}

    def send(self, drafts: Sequence[Draft]) -> list[str]:
        self.ids = [""] * len(drafts)
        chosen = [options.id for _, _, options in drafts if options.id is not None]
        if chosen:
            self.existing = log.existing(self.transaction, self.queue, chosen)
        for place, draft in enumerate(drafts):
            self._place(place, draft)
        self._hold_all()
        for (priority, shard), records in self.lanes.items():
            self._append(priority, shard, records)
        for batch_id, count in self.members.items():
            self.transaction.run("count_members", {"batch_id": batch_id, "count": count})
        return self.ids

    def _place(self, place: int, draft: Draft) -> None:
        payload, content_type, options = draft
        if options.id is not None:
            self.ids[place] = options.id
            if options.id in self.existing:
                return
            self.existing.add(options.id)
        batch = self._batch(options)
        self._check_address(options)
        record = self._record(payload, content_type, options, None if batch is None else batch.batch_id)
        if record.deadline_at is not None and record.deadline_at <= self.transaction.now:
            queues.recheck_expiry(self.transaction, self.queue.queue_id, None, record.deadline_at - 1)
        shard = self._shard(place, options.key)
        waiting = batch is not None and batch.state == "open"
        if waiting or (record.available_at or 0) > self.transaction.now:
            self.ids[place] = self._hold(options.priority, shard, record, waiting)
        else:
            self.lanes.setdefault((options.priority, shard), []).append((place, record._replace(available_at=None)))

    def _shard(self, place: int, key: str | None) -> int:
        policy = self.queue.policy
        if key is None and not policy.ordered:
            return policy.shard_among(self.shard, place, len(self.ids))
        return policy.shard_of(key)

    def _check_address(self, options: Options) -> None:
        address = options.address
        if address is None:
            return
        if self.queue.policy.primary_group is None:
            raise refusals.address_without_owner(self.queue.name, address)
        existing = self.addresses.get(address) or addresses.live_at(self.transaction, self.queue, address)
        if address in self.addresses or existing is not None:
            raise refusals.duplicate_address(self.queue.name, address, existing)
        self.addresses[address] = options.id

    def _batch(self, options: Options) -> batches.StoredBatch | None:
        if options.batch is None:
            return None
        meant = (options.batch, options.batch_after, options.batch_queue)
        batch = self.batches.get(meant)
        if batch is None:
            batch = self.batches[meant] = batches.join_from(self.transaction, self.queue, *meant)
        self.members[batch.batch_id] = self.members.get(batch.batch_id, 0) + 1
        return batch

    def _record(self, payload: bytes, content_type: str | None, options: Options, batch_id: int | None) -> log.Record:
        now, policy = self.transaction.now, self.queue.policy
        delay = policy.delay_seconds if options.delay_seconds is None else options.delay_seconds
        ttl = policy.ttl_seconds if options.ttl_seconds is None else options.ttl_seconds
        return log.Record(
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

    def _hold(self, priority: int, shard: int, record: log.Record, waiting: bool) -> str:
        transaction = self.transaction
        # Two halves, because the injected random source gives 53 bits at a time.
        bits = int(transaction.random() * (1 << 37)) << 37 | int(transaction.random() * (1 << 37))
        message_id = record.id or random_id(transaction.now, bits)
        self.held.append(
            (
                self.queue.queue_id, priority, shard, record.available_at, int(waiting), message_id, record.created_at,
                record.content_type, record.headers, record.expires_at, record.deadline_at, record.address, record.key,
                record.batch_id, record.created_by, record.payload,
            )
        )  # fmt: skip
        self._take_address(record, message_id, None)
        return message_id

    def _hold_all(self) -> None:
        if not self.held:
            return
        transaction, queue_id = self.transaction, self.queue.queue_id
        last: int = transaction.value("last_held")
        transaction.run_many("hold_message", self.held)
        transaction.run("identify_held", {"queue_id": queue_id, "after": last})
        transaction.run("count_held", {"queue_id": queue_id, "change": len(self.held)})

    def _append(self, priority: int, shard: int, placed: list[tuple[int, log.Record]]) -> None:
        transaction, queue_id = self.transaction, self.queue.queue_id
        first = log.append(transaction, queue_id, priority, shard, [record for _, record in placed])
        chosen = [(record.id, at) for at, (_, record) in enumerate(placed, first) if record.id is not None]
        log.identify(transaction, queue_id, chosen)
        for position, (place, record) in enumerate(placed, first):
            message_id = record.id or made_id(record.created_at, transaction.salt, position)
            self.ids[place] = message_id
            self._take_address(record, message_id, position)
            if record.batch_id is not None:
                transaction.run("join_batch", {"position": position, "batch_id": record.batch_id})

    def _take_address(self, record: log.Record, message_id: str, position: int | None) -> None:
        if record.address is not None:
            addresses.take_address(self.transaction, self.queue.queue_id, record.address, message_id, position)
