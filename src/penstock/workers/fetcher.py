"""The thread of a worker that receives messages for its handlers and settles what they have finished.

It receives before it settles, so that handlers run while settlements wait for the disk. More settlements gather
meanwhile: the faster the handlers, the larger the transactions.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from penstock.client.executor import BACKSTOP_SECONDS
from penstock.domain.errors import ConsumerRemoved
from penstock.engines.contract import Engine
from penstock.workers.backoff import TRANSIENT, Backoff
from penstock.workers.demand import Demand, Supply
from penstock.workers.listener import CommitListener
from penstock.workers.priority_slots import Offer, PrioritySlots
from penstock.workers.settler import LINGER_SECONDS, Settler
from penstock.workers.slots import Slots
from penstock.workers.source import QueueSource


class Fetcher:
    def __init__(
        self,
        engine: Engine,
        consumer: str,
        sources: dict[QueueSource, Slots],
        priority_slots: PrioritySlots | None,
        fail: Callable[[BaseException], None],
        on_idle: Callable[[], None],
        register_again: Callable[[QueueSource], None],
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._sources = sources
        self._demands = {source: Demand() for source in sources}
        self._priority_slots = priority_slots
        self._settler = Settler(engine, sources)
        self._fail = fail
        self._on_idle = on_idle
        self._register_again = register_again
        self._awake = threading.Event()
        self._has_commit = False
        self._has_free_slot = False
        self._seen = 0
        self._grants = itertools.count(1)
        self._is_receiving = True
        self._receiving = threading.Lock()
        self._finishing = threading.Event()
        self._listener = CommitListener(engine, self.committed)
        self._thread = threading.Thread(target=self._run, name="penstock-fetcher", daemon=True)

    def start(self) -> None:
        self._listener.start()
        self._thread.start()

    def wake(self) -> None:
        if not self._awake.is_set():
            self._awake.set()

    def committed(self) -> None:
        """After a commit anywhere: empty queues may have messages now."""
        self._has_commit = True
        self.wake()

    def slot_freed(self) -> None:
        self._has_free_slot = True
        self.wake()

    def stop_receiving(self, within_seconds: float) -> bool:
        """Stop receiving; returns whether a receive in progress has returned. Until it has, its messages cannot be
        released, and deregistering the consumer would cost them an attempt."""
        self._is_receiving = False
        if not self._receiving.acquire(timeout=within_seconds):
            return False
        self._receiving.release()
        return True

    def finish(self, within_seconds: float) -> bool:
        """After `stop_receiving`: settle the rest and end; returns whether everything was settled in time."""
        self._finishing.set()
        self.wake()
        self._listener.stop()
        self._thread.join(max(0.0, within_seconds))
        return not self._thread.is_alive() and not self._settler.has_unsettled

    def _run(self) -> None:
        backoff = Backoff("the store of this worker")
        while True:
            self._awake.clear()
            try:
                timeout = self._cycle()
                backoff.succeeded()
            except TRANSIENT as error:
                timeout = backoff.failed(error)
                # Not `_awake`: handlers that finish during an outage must not cause a busy loop.
                if self._finishing.wait(timeout):
                    self._awake.wait(min(timeout, 0.1))
                timeout = 0.0
            except BaseException as error:
                self._fail(error)
                return
            if self._finishing.is_set() and not self._settler.has_unsettled:
                return
            if timeout > 0:
                self._awake.wait(timeout)

    # -- one cycle -------------------------------------------------------------------------------------------------

    def _cycle(self) -> float:
        """Receive and settle once; returns the seconds until the next cycle."""
        with self._receiving:
            if self._is_receiving:
                self._check(time.monotonic())
                if self._priority_slots is None:
                    for source in self._sources:
                        self._receive(source, self._room(source))
                else:
                    self._receive_by_priority(self._priority_slots)
        if self._settler.settle(everything=self._finishing.is_set()):
            # A settlement may make messages ready: a retry, the next of a shard, the end message of a batch.
            self._note_commit(lightly=False)
            return 0.0
        return self._rest()

    def _check(self, now: float) -> None:
        """Ask the store about queues in the unknown state. This takes no write lock."""
        self._seen = self._engine.seen()
        if self._has_commit:
            self._has_commit = False
            self._note_commit(self._engine.capabilities.receives_lightly)
        if self._has_free_slot:
            self._has_free_slot = False
            for demand in self._demands.values():
                demand.slot_freed()
        for source, demand in self._demands.items():
            demand.passed(now)
            if demand.state is Supply.UNKNOWN and source.accepted and self._could_use(source):
                demand.checked(self._engine.ready_in(source.name, source.group), time.monotonic())

    def _note_commit(self, lightly: bool) -> None:
        for demand in self._demands.values():
            demand.committed(lightly)

    def _could_use(self, source: QueueSource) -> bool:
        return self._room(source) > 0 or self._sources[source].can_grow

    def _rest(self) -> float:
        """Seconds until the next cycle unless somebody wakes the thread."""
        now = time.monotonic()
        wait = LINGER_SECONDS if self._settler.has_unsettled else BACKSTOP_SECONDS
        is_idle, listens = not any(source.batches for source in self._sources), False
        for source, demand in self._demands.items():
            if not source.accepted:
                continue
            is_idle = is_idle and demand.is_idle
            listens = listens or demand.awaits_commit
            if demand.check_at is not None:
                wait = min(wait, max(0.0, demand.check_at - now))
            if self._is_receiving and self._can_go_on(source, demand):
                wait = 0.0
        if self._is_receiving:
            if is_idle:
                self._on_idle()
            if listens:
                self._listener.listen(self._seen)
        return wait

    def _can_go_on(self, source: QueueSource, demand: Demand) -> bool:
        if demand.state is Supply.UNKNOWN:
            return self._could_use(source)
        return demand.state is Supply.READY and self._room(source) > 0

    # -- receive ---------------------------------------------------------------------------------------------------

    def _room(self, source: QueueSource) -> int:
        """How many messages to receive: 0 until half of the buffer is used up, because large receives are cheaper."""
        slots = self._sources[source]
        capacity = slots.capacity
        target = source.target(capacity)
        source.low_water = max((target - capacity * source.at_once) // 2, source.at_once - 1)
        if self._priority_slots is None and len(source.buffer) > source.low_water:
            return 0
        # A handler that waits for another message holds its own message, but no slot.
        return target - source.held + (slots.unfinished - slots.busy) * source.at_once

    def _receive(self, source: QueueSource, room: int) -> None:
        demand, slots = self._demands[source], self._sources[source]
        if demand.state is not Supply.READY or not source.accepted:
            source.low_water = -1 if demand.state is Supply.EMPTY else source.low_water
            return
        if room <= 0:
            slots.grow()
            return
        asked_at = time.monotonic()
        lease_seconds = source.policy.lease_seconds
        try:
            receipt = self._engine.receive(source.name, source.group, self._consumer, room, lease_seconds)
        except ConsumerRemoved:
            self._register_again(source)
            return
        demand.received(len(receipt.rows), room)
        if slots.can_grow:
            demand.recheck()
        if receipt.rows:
            source.add(receipt, asked_at)
            slots.notify()

    def _receive_by_priority(self, priority_slots: PrioritySlots) -> None:
        """Give the slots that all queues share to the best priorities."""
        waiting = sum(-(-len(source.buffer) // source.at_once) for source in self._sources)
        free = priority_slots.most - priority_slots.running - waiting
        ready = [source for source, demand in self._demands.items() if demand.state is Supply.READY and source.accepted]
        if free <= 0:
            for source in ready:
                self._demands[source].blocked()
            return
        offers = [self._offer(source, free) for source in ready]
        granted = priority_slots.grant(offers, waiting)
        for source, offer, calls in zip(ready, offers, granted, strict=True):
            if calls:
                source.granted_at = next(self._grants)
                self._receive(source, calls * source.at_once)
            elif offer.priorities:
                self._demands[source].blocked()
            elif self._room(source) > 0:
                self._demands[source].received(0, 1)
            else:
                self._sources[source].grow()

    def _offer(self, source: QueueSource, free: int) -> Offer:
        """The priorities of the calls that a queue could start with the free slots."""
        calls = min(free, self._room(source) // source.at_once)
        running = self._sources[source].busy
        if calls <= 0:
            return Offer([], running, source.granted_at)
        nearest = self._engine.peek(source.name, source.group, calls * source.at_once)
        return Offer([one.priority for one in nearest[:: source.at_once]], running, source.granted_at)
