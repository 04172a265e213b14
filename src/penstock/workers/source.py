"""One queue and group that a worker receives from: what it holds of it, and what became of that."""

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
from penstock.workers.gate import Gate
from penstock.workers.outcome import ack_of, event_of, make_settle
from penstock.workers.ready import Item, Ready, priority_of
from penstock.workers.take import AnyHeld, Take

logger = logging.getLogger("penstock.worker")
# A message that waits here could run elsewhere: hold no more than the handlers will start within this time.
PREFETCH_SECONDS = 0.2
MOST_PREFETCHED = 2_000
PREFETCHED_PER_SLOT = 250
MEASURE_SECONDS = 0.02


class Observer(Protocol):
    """Who wants to know what a worker does: metrics."""

    def received(self, source: Source, count: int) -> None: ...
    def finished(self, source: Source, delivery: AnyHeld, event: Event, seconds: float) -> None: ...
    def lost(self, source: Source, count: int) -> None: ...


class Source:
    def __init__(self, handler: Handler, queue: Queue, group: str, policy: Policy, concurrency: int) -> None:
        self.handler = handler
        self.queue = queue
        self.group = group
        self.policy = policy
        self.concurrency = concurrency
        self.gate: Gate | None = None
        self.make: Callable[[Receipt], list[AnyHeld]] = lambda receipt: []
        self.wake: Callable[[], None] = lambda: None
        self.fail: Callable[[BaseException], None] = lambda error: None
        self.observer: Observer | None = None
        self.ready = Ready()
        self.takes: dict[int, Take] = {}
        self.touched: deque[Take] = deque()
        self.counts: Counter[str] = Counter()
        self.accepted = True
        # Set by the pump: wake it when this few are ready. Below zero when there is nothing to fetch.
        self.low_water = -1
        self.rate = 0.0
        self._finished = 0
        self._measured_at = time.monotonic()
        self.oldest_ready_at = 0.0

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def at_once(self) -> int:
        """How many messages one call of the handler takes."""
        return self.handler.batch_size or 1

    @property
    def held(self) -> int:
        return sum(take.left for take in list(self.takes.values()))

    @property
    def at_work(self) -> int:
        """How many messages may run at the same time."""
        slots = self.concurrency if self.gate is None else min(self.concurrency, self.gate.most)
        return slots * self.at_once

    @property
    def target(self) -> int:
        """How many messages to hold: what runs, and what will run soon. An at_most_once message is taken only when it
        can run at once: those that wait here would be lost with the worker."""
        running = self.at_work
        if self.policy.at_most_once or self.gate is not None:
            return running
        if self.handler.prefetch is not None:
            return running + self.handler.prefetch * self.concurrency
        soon = min(self.rate * PREFETCH_SECONDS, PREFETCHED_PER_SLOT * running, MOST_PREFETCHED)
        return running + int(soon)

    # -- receiving -------------------------------------------------------------------------------------------------

    def add(self, receipt: Receipt, asked_at: float) -> None:
        """What a receive brought is held from now on."""
        if not receipt.rows:
            return
        self.takes[receipt.token] = Take(receipt, asked_at, self.policy.lease_seconds)
        if not len(self.ready):
            self.oldest_ready_at = time.monotonic()
        deliveries = self.make(receipt)
        if self.policy.keeps_order:
            for delivery in deliveries:
                delivery._before = self
        self.ready.extend(self._items(deliveries))
        if self.observer is not None:
            self.observer.received(self, len(receipt.rows))

    def _items(self, deliveries: list[AnyHeld]) -> list[Item]:
        """In an ordered queue a shard is handled one message after the other, whatever it holds."""
        if not self.policy.ordered:
            return list(deliveries)
        shards: dict[int, list[AnyHeld]] = {}
        for delivery in deliveries:
            shards.setdefault(self.policy.shard_of(delivery.key), []).append(delivery)
        return sorted(shards.values(), key=priority_of)

    def said_before(self, delivery: AnyHeld) -> list[Settle]:
        """How handlers of the same receive ended that the store has not been told of yet."""
        take = self.takes.get(delivery.token)
        return [] if take is None else [*map(ack_of, list(take.acked)), *take.others]

    def next_item(self) -> Item | None:
        """The best message that may start now."""
        gate = self.gate
        if gate is None:
            return self.ready.pop()
        for priority in self.ready.priorities():
            if gate.enter(priority):
                item = self.ready.pop(priority)
                if item is not None:
                    return item
                gate.leave()
        return None

    def may_start(self) -> bool:
        """Whether something is ready for which the worker as a whole has room."""
        if self.gate is None:
            return len(self.ready) > 0
        return any(self.gate.free(priority) for priority in self.ready.priorities())

    def waits_for_more(self, now: float) -> float:
        """Seconds that a handler of batches should still wait for its batch to fill."""
        handler = self.handler
        if not handler.batch_seconds or len(self.ready) >= self.at_once:
            return 0
        return max(0, self.oldest_ready_at + handler.batch_seconds - now)

    def begins(self, delivery: AnyHeld, now: float) -> bool:
        """Whether the message is still ours. A worker that was stopped for a while finds out here."""
        take = self.takes.get(delivery._receipt.token)
        position = delivery._row[POSITION]
        if take is None or (take.closed and position in take.closed):
            return False
        if take.is_over(position, now):
            self.drop(delivery, "its lease ended before its handler began")
            return False
        return True

    # -- finishing -------------------------------------------------------------------------------------------------

    def finish_well(self, delivery: AnyHeld, began_at: float) -> None:
        """As `finish`, for the commonest end of all, which is a plain ack: this is run for every message."""
        take = self.takes.get(delivery._receipt.token)
        if take is None:
            return
        acked = take.acked
        acked.append(delivery)
        if self.observer is not None:
            self.observer.finished(self, delivery, Event.ACK, time.monotonic() - began_at)
        if take.touched_at is None:
            take.touched_at = time.monotonic()
            self.touched.append(take)
        if len(acked) == take.size or len(self.ready) <= self.low_water or (take.closed and take.left <= 0):
            self.wake()

    def finish(self, delivery: AnyHeld, settle: Settle | None, error: BaseException | None, seconds: float) -> None:
        """A handler has come to its end. Called by slots, from many threads."""
        take = self.takes.get(delivery._receipt.token)
        if take is None:
            return
        if settle is None and delivery._settled is None:
            take.acked.append(delivery)
        elif delivery._settled is not None:
            take.closed.add(delivery.position)
            self.counts[str(delivery._settled)] += 1
            if settle is not None:
                self._log_ignored(delivery, settle, error)
        else:
            assert settle is not None
            take.others.append(settle)
            self._tell(delivery, settle, error)
        if self.observer is not None:
            self.observer.finished(self, delivery, event_of(delivery, settle), seconds)
        self.touch(take)

    def touch(self, take: Take) -> None:
        """The pump has something to say or to clear away."""
        if take.touched_at is None:
            take.touched_at = time.monotonic()
            self.touched.append(take)
        if len(take.acked) >= take.size or take.left <= 0 or len(self.ready) <= self.low_water:
            self.wake()

    def _tell(self, delivery: AnyHeld, settle: Settle, error: BaseException | None) -> None:
        about = about_delivery(delivery)
        if error is None or isinstance(error, Signal):
            logger.info("%s of message %s: %s", settle.event, delivery.id, settle.reason, extra=about)
        else:
            logger.warning(
                "%s of message %s: %s", settle.event, delivery.id, settle.reason, extra=about, exc_info=error
            )

    def _log_ignored(self, delivery: AnyHeld, settle: Settle, error: BaseException | None) -> None:
        """The handler had settled its message itself: what it did afterwards changes nothing, but is no secret."""
        logger.warning(
            "%s of message %s by its handler stands, though it did not end well: %s",
            delivery._settled,
            delivery.id,
            settle.reason,
            extra=about_delivery(delivery),
            exc_info=error,
        )

    def release(self, deliveries: list[AnyHeld], reason: str) -> None:
        """Give back, without counting an attempt, what no handler has begun or what was cut short. An at_most_once
        message comes back only after a nak, and no handler has begun it: so that is what is said."""
        event, delay = (Event.NAK, 0.0) if self.policy.at_most_once else (Event.RELEASE, None)
        for delivery in deliveries:
            take = self.takes.get(delivery.token)
            if take is not None and delivery.position not in take.closed:
                take.others.append(make_settle(event, delivery, reason, delay))
                self.touch(take)

    def pass_over(self, deliveries: list[AnyHeld]) -> None:
        """The store gives back by itself what lies behind a message of its shard that is tried again."""
        for delivery in deliveries:
            take = self.takes.get(delivery.token)
            if take is not None:
                take.closed.add(delivery.position)
                self.touch(take)

    def drop(self, delivery: AnyHeld, reason: str) -> None:
        """The message is no longer ours, and nothing is to be said about it."""
        take = self.takes.get(delivery.token)
        if take is not None and delivery.position not in take.closed:
            take.closed.add(delivery.position)
            self.note_lost([delivery.id], reason)
            self.touch(take)

    def note_lost(self, ids: list[str], reason: str) -> None:
        self.counts["lost"] += len(ids)
        if self.observer is not None:
            self.observer.lost(self, len(ids))
        for message_id in ids:
            about = {"queue": self.name, "group": self.group, "message_id": message_id}
            logger.warning("lost the lease of message %s of queue %s: %s", message_id, self.name, reason, extra=about)

    def measure(self, finished: int, now: float) -> None:
        """How fast handlers finish, of late."""
        self._finished += finished
        elapsed = now - self._measured_at
        if elapsed >= MEASURE_SECONDS:
            self.rate = (self.rate + self._finished / elapsed) / 2
            self._finished, self._measured_at = 0, now

    def count(self, settles: list[Settle], acked: int) -> None:
        if acked:
            self.counts["ack"] += acked
        for event, several in groupby(settles, key=lambda settle: settle.event):
            self.counts[str(event)] += sum(1 for _ in several)


def about_delivery(delivery: AnyHeld) -> dict[str, Any]:
    """What a log record says about a message, beside its text."""
    return {
        "queue": delivery.queue,
        "group": delivery.group,
        "message_id": delivery.id,
        "attempt": delivery.attempt,
        "consumer": delivery.consumer,
    }
