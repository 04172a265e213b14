"""One queue and group that a worker receives from, with the messages it holds and their outcomes."""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Callable
from itertools import groupby
from typing import Any, Protocol

from penstock.client.queue import Queue
from penstock.domain.lifecycle import Event
from penstock.domain.policy import Policy
from penstock.domain.settlement import Settle, Signal
from penstock.engines.contract import POSITION, Receipt
from penstock.workers.app import Handler
from penstock.workers.buffer import Buffer, emptied, priority_of
from penstock.workers.error_trace import trace_of
from penstock.workers.lease_batch import AnyDelivery, Item, LeaseBatch
from penstock.workers.outcome import ack_of, event_of, make_settle
from penstock.workers.priority_slots import PrioritySlots

logger = logging.getLogger("penstock.worker")
# Prefetched messages could run in other workers: prefetch no more than the handlers start within this time, or within
# this share of a lease.
PREFETCH_SECONDS = 0.2
PREFETCH_SHARE = 0.1
MAX_PREFETCHED = 2_000
PREFETCHED_PER_SLOT = 250
MEASURE_SECONDS = 0.02
# The reason of a release.
STOPPING = "the worker stops"


class Observer(Protocol):
    """Receives the events of a worker, such as metrics do."""

    def received(self, source: QueueSource, count: int) -> None: ...
    def finished(self, source: QueueSource, delivery: AnyDelivery, event: Event, seconds: float) -> None: ...
    def lost(self, source: QueueSource, count: int) -> None: ...


class QueueSource:
    def __init__(self, handler: Handler, queue: Queue, group: str, policy: Policy, concurrency: int) -> None:
        self.handler = handler
        self.queue = queue
        self.group = group
        self.policy = policy
        self.concurrency = concurrency
        self.priority_slots: PrioritySlots | None = None
        self.make: Callable[[Receipt], list[AnyDelivery]] = lambda receipt: []
        self.wake: Callable[[], None] = lambda: None
        self.fail: Callable[[BaseException], None] = lambda error: None
        self.observer: Observer | None = None
        self.buffer = Buffer()
        self.batches: dict[int, LeaseBatch] = {}
        self.touched: deque[LeaseBatch] = deque()
        self.counts: Counter[str] = Counter()
        # Stack traces of failed handlers by position, until they are stored with the settlement.
        self.traces: dict[int, str] = {}
        self.accepted = True
        # Set by the fetcher: wake it when the buffer falls to this size; negative when there is nothing to receive.
        self.low_water = -1
        self.granted_at = 0
        self.oldest_buffered_at = 0.0
        self.is_closed = False
        # Messages had to be released: prefetch nothing until a handler has finished.
        self.is_stalled = False
        self._rate = 0.0
        self._finished = 0
        self._measured_at = time.monotonic()

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def at_once(self) -> int:
        """How many messages one call of the handler takes."""
        return self.handler.batch_size or 1

    @property
    def held(self) -> int:
        return sum(batch.left for batch in list(self.batches.values()))

    def target(self, capacity: int) -> int:
        """How many messages to hold for this many concurrent calls, prefetched ones included. At_most_once messages are
        not prefetched: buffered ones would be lost with the worker."""
        if self.priority_slots is not None:
            return min(capacity, self.priority_slots.most) * self.at_once
        running = capacity * self.at_once
        if self.policy.at_most_once or self.is_stalled or not running:
            return running
        if self.handler.prefetch is not None:
            return running + self.handler.prefetch * capacity
        seconds = min(PREFETCH_SECONDS, self.policy.lease_seconds * PREFETCH_SHARE)
        return running + int(min(self._rate * seconds, PREFETCHED_PER_SLOT * running, MAX_PREFETCHED))

    # -- receive ---------------------------------------------------------------------------------------------------

    def add(self, receipt: Receipt, asked_at: float) -> None:
        """Take over the messages of a receive."""
        if not receipt.rows:
            return
        deliveries = self.make(receipt)
        if self.policy.keeps_order:
            for delivery in deliveries:
                delivery._before = self
        items = self._items(deliveries)
        batch = LeaseBatch(receipt, items, asked_at, self.policy.lease_seconds, self.handler.batch_seconds)
        self.batches[receipt.token] = batch
        if self.observer is not None:
            self.observer.received(self, len(receipt.rows))
        if self.is_closed:
            self.release(deliveries, STOPPING)
            return
        if not len(self.buffer):
            self.oldest_buffered_at = time.monotonic()
        self.buffer.extend(items)

    def _items(self, deliveries: list[AnyDelivery]) -> list[Item]:
        """One item per message; in an ordered queue one per shard, whose messages are handled in order."""
        if not self.policy.ordered:
            return list(deliveries)
        shards: dict[int, deque[AnyDelivery]] = {}
        for delivery in deliveries:
            shards.setdefault(self.policy.shard_of(delivery.key), deque()).append(delivery)
        return sorted(shards.values(), key=priority_of)

    def preceding(self, delivery: AnyDelivery) -> list[Settle]:
        """The settlements of the same receive that are not in the store yet."""
        batch = self.batches.get(delivery.token)
        return [] if batch is None else [*map(ack_of, list(batch.acked)), *list(batch.others)]

    def next_item(self) -> Item | None:
        """The best message that may start now."""
        slots = self.priority_slots
        if slots is None:
            return self.buffer.pop()
        for priority in self.buffer.priorities():
            if slots.enter(priority):
                item = self.buffer.pop(priority)
                if item is not None:
                    return item
                slots.leave()
        return None

    def may_start(self) -> bool:
        """Whether a message is buffered for whose priority the worker has a free slot."""
        if self.priority_slots is None:
            return len(self.buffer) > 0
        return any(self.priority_slots.free(priority) for priority in self.buffer.priorities())

    def waits_for_more(self, now: float) -> float:
        """Seconds for which a batch handler should still wait for its batch to fill."""
        handler = self.handler
        if not handler.batch_seconds or len(self.buffer) >= self.at_once:
            return 0
        return max(0, self.oldest_buffered_at + handler.batch_seconds - now)

    def begins(self, delivery: AnyDelivery, now: float) -> bool:
        """Whether the lease is still held. A worker that was suspended notices the loss here."""
        batch = self.batches.get(delivery._receipt.token)
        position = delivery._row[POSITION]
        if batch is None or (batch.closed and position in batch.closed):
            return False
        if batch.has_ended(position, now):
            self.drop(delivery, "its lease ended before its handler began")
            return False
        return True

    # -- giving back -----------------------------------------------------------------------------------------------

    def give_back_overdue(self, now: float) -> None:
        """Release messages that have been buffered for too long, so that other workers can run them."""
        overdue = [batch for batch in list(self.batches.values()) if now >= batch.give_back_at]
        given_back = [delivery for batch in overdue for delivery in self._unstarted(batch)]
        if given_back:
            self.is_stalled = True
            self._rate = 0.0
            self.release(given_back, "its handlers did not get on")
            logger.warning(
                "queue %s: %d messages waited for too long for a handler and are given back",
                self.name,
                len(given_back),
                extra={"queue": self.name, "group": self.group},
            )

    def close(self) -> None:
        """Start no more handlers. One that began now could be cut short by the end of the grace period."""
        self.is_closed = True
        self.give_back_all()

    def give_back_all(self) -> None:
        """Release all messages that no handler has started."""
        self.release([one for batch in list(self.batches.values()) for one in self._unstarted(batch)], STOPPING)

    def _unstarted(self, batch: LeaseBatch) -> list[AnyDelivery]:
        """Remove the messages that no handler has started from the buffer. A shard of an ordered queue is emptied from
        its end, also while a slot handles its beginning."""
        batch.given_back()
        unstarted: list[AnyDelivery] = []
        for item in batch.items:
            if isinstance(item, deque):
                self.buffer.remove(item)
                unstarted += emptied(item)
            elif self.buffer.remove(item):
                unstarted.append(item)
        return unstarted

    # -- finishing -------------------------------------------------------------------------------------------------

    def finish_acked(self, delivery: AnyDelivery, began_at: float) -> None:
        """`finish` for a plain ack, the hot path."""
        batch = self.batches.get(delivery._receipt.token)
        if batch is None:
            return
        acked = batch.acked
        acked.append(delivery)
        if self.observer is not None:
            self.observer.finished(self, delivery, Event.ACK, time.monotonic() - began_at)
        if batch.touched_at is None:
            self.touch(batch)
        elif len(acked) == batch.size or len(self.buffer) <= self.low_water or (batch.closed and batch.left <= 0):
            self.wake()

    def finish(self, delivery: AnyDelivery, settle: Settle | None, error: BaseException | None, seconds: float) -> None:
        """Record the outcome of a handler. Called by slots from many threads."""
        batch = self.batches.get(delivery._receipt.token)
        if batch is None:
            return
        if settle is None and delivery._settled is None:
            batch.acked.append(delivery)
        elif delivery._settled is not None:
            batch.closed.add(delivery.position)
            self.counts[str(delivery._settled)] += 1
            if settle is not None:
                self._log_ignored(delivery, settle, error)
        else:
            assert settle is not None
            trace = trace_of(error)
            if trace is not None:
                self.traces[delivery.position] = trace
            batch.others.append(settle)
            self._log_settlement(delivery, settle, error)
        if self.observer is not None:
            self.observer.finished(self, delivery, event_of(delivery, settle), seconds)
        self.touch(batch)

    def touch(self, batch: LeaseBatch) -> None:
        """Mark a batch as having something to settle. The first mark wakes the fetcher, which then lingers."""
        is_first = batch.touched_at is None
        if is_first:
            batch.touched_at = time.monotonic()
            self.touched.append(batch)
        if is_first or batch.left <= 0 or len(self.buffer) <= self.low_water:
            self.wake()

    def _log_settlement(self, delivery: AnyDelivery, settle: Settle, error: BaseException | None) -> None:
        about = about_delivery(delivery)
        if error is None or isinstance(error, Signal):
            logger.info("%s of message %s: %s", settle.event, delivery.id, settle.reason, extra=about)
        else:
            logger.warning(
                "%s of message %s: %s", settle.event, delivery.id, settle.reason, extra=about, exc_info=error
            )

    def _log_ignored(self, delivery: AnyDelivery, settle: Settle, error: BaseException | None) -> None:
        """Log an outcome that has no effect, because the handler had settled its message itself."""
        logger.warning(
            "%s of message %s by its handler stands, though it did not end well: %s",
            delivery._settled,
            delivery.id,
            settle.reason,
            extra=about_delivery(delivery),
            exc_info=error,
        )

    def release(self, deliveries: list[AnyDelivery], reason: str) -> None:
        """Release messages whose handler has not started or was cut short, without counting the attempt. An
        at_most_once message comes back only after a nak; no handler has started it, so it is nakked."""
        event, delay = (Event.NAK, 0.0) if self.policy.at_most_once else (Event.RELEASE, None)
        for delivery in deliveries:
            batch = self.batches.get(delivery.token)
            if batch is not None and delivery.position not in batch.closed:
                batch.others.append(make_settle(event, delivery, reason, delay))
                self.touch(batch)

    def pass_over(self, deliveries: list[AnyDelivery]) -> None:
        """Drop messages of a shard that the store releases itself, because a message before them is retried."""
        for delivery in deliveries:
            batch = self.batches.get(delivery.token)
            if batch is not None:
                batch.closed.add(delivery.position)
                self.touch(batch)

    def drop(self, delivery: AnyDelivery, reason: str) -> None:
        """Drop a message whose lease was lost, without settling it."""
        batch = self.batches.get(delivery.token)
        if batch is not None and delivery.position not in batch.closed:
            batch.closed.add(delivery.position)
            self.note_lost([delivery.id], reason)
            self.touch(batch)

    def note_lost(self, ids: list[str], reason: str) -> None:
        self.counts["lost"] += len(ids)
        if self.observer is not None:
            self.observer.lost(self, len(ids))
        for message_id in ids:
            about = {"queue": self.name, "group": self.group, "message_id": message_id}
            logger.warning("lost the lease of message %s of queue %s: %s", message_id, self.name, reason, extra=about)

    def measure(self, finished: int, now: float) -> None:
        """Update the rate at which handlers finish."""
        if not finished:
            return
        self.is_stalled = False
        self._finished += finished
        elapsed = now - self._measured_at
        if elapsed >= MEASURE_SECONDS:
            self._rate = (self._rate + self._finished / elapsed) / 2
            self._finished, self._measured_at = 0, now

    def count(self, settles: list[Settle], acked: int) -> None:
        if acked:
            self.counts["ack"] += acked
        for event, several in groupby(settles, key=lambda settle: settle.event):
            self.counts[str(event)] += sum(1 for _ in several)


def about_delivery(delivery: AnyDelivery) -> dict[str, Any]:
    """The fields of a log record about a message."""
    return {
        "queue": delivery.queue,
        "group": delivery.group,
        "message_id": delivery.id,
        "attempt": delivery.attempt,
        "consumer": delivery.consumer,
    }
