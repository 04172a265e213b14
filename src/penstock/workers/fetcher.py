"""The thread of a worker that receives what its handlers can start soon, and settles what they have finished.

It receives first, so that handlers work while settlements wait for the disk; meanwhile more of them gather, so the
faster the handlers are, the more a transaction carries.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from penstock.client.calling import BACKSTOP_SECONDS
from penstock.engines.contract import Engine
from penstock.workers.demand import Demand, State
from penstock.workers.listener import Listener
from penstock.workers.patience import PASSING, Patience
from penstock.workers.priority_slots import Offer, PrioritySlots
from penstock.workers.settler import LINGER_SECONDS, Settler
from penstock.workers.slots import Slots
from penstock.workers.source import Source


class Fetcher:
    def __init__(
        self,
        engine: Engine,
        consumer: str,
        sources: dict[Source, Slots],
        priority_slots: PrioritySlots | None,
        fail: Callable[[BaseException], None],
        on_idle: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._consumer = consumer
        self._sources = sources
        self._demands = {source: Demand() for source in sources}
        self._priority_slots = priority_slots
        self._settler = Settler(engine, sources)
        self._fail = fail
        self._on_idle = on_idle
        self._awake = threading.Event()
        self._has_commit = False
        self._has_free_slot = False
        self._seen = 0
        self._grants = itertools.count(1)
        self._is_receiving = True
        self._receiving = threading.Lock()
        self._finishing = threading.Event()
        self._listener = Listener(engine, self.committed)
        self._thread = threading.Thread(target=self._run, name="penstock-fetcher", daemon=True)

    def start(self) -> None:
        self._listener.start()
        self._thread.start()

    def wake(self) -> None:
        if not self._awake.is_set():
            self._awake.set()

    def committed(self) -> None:
        """Something was committed, here or elsewhere: queues that were empty may not be."""
        self._has_commit = True
        self.wake()

    def slot_freed(self) -> None:
        self._has_free_slot = True
        self.wake()

    def stop_receiving(self, within_seconds: float) -> bool:
        """Receive nothing from now on; whether the receive under way, if there is one, has returned. Until then nobody
        can give back its messages, and the end of the consumer would cost them an attempt."""
        self._is_receiving = False
        if not self._receiving.acquire(timeout=within_seconds):
            return False
        self._receiving.release()
        return True

    def finish(self, within_seconds: float) -> bool:
        """After `stop_receiving`: settle what is left and end; whether all of it was settled in time."""
        self._finishing.set()
        self.wake()
        self._listener.stop()
        self._thread.join(max(0.0, within_seconds))
        return not self._thread.is_alive() and not self._settler.has_unsettled

    def _run(self) -> None:
        patience = Patience("the store of this worker")
        while True:
            self._awake.clear()
            try:
                timeout = self._cycle()
                patience.worked()
            except PASSING as error:
                timeout = patience.failed(error)
                # Not `_awake`: whoever finishes meanwhile must not turn an outage into a spin.
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

    # -- one turn --------------------------------------------------------------------------------------------------

    def _cycle(self) -> float:
        """Do what there is to do; seconds until there may be more."""
        with self._receiving:
            if self._is_receiving:
                self._check(time.monotonic())
                if self._priority_slots is None:
                    for source in self._sources:
                        self._receive(source, self._room(source))
                else:
                    self._receive_by_priority(self._priority_slots)
        if self._settler.settle(everything=self._finishing.is_set()):
            # What was settled may make other messages ready: a retry, the next of a shard, the end of a batch.
            self._note_commit(lightly=False)
            return 0.0
        return self._rest()

    def _check(self, now: float) -> None:
        """Find out about queues of which nothing is known. Asking takes no write lock."""
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
            if demand.state is State.UNKNOWN and source.accepted and self._could_use(source):
                demand.checked(self._engine.ready_in(source.name, source.group), time.monotonic())

    def _note_commit(self, lightly: bool) -> None:
        for demand in self._demands.values():
            demand.committed(lightly)

    def _could_use(self, source: Source) -> bool:
        return self._room(source) > 0 or self._sources[source].can_grow

    def _rest(self) -> float:
        """How long nothing will happen by itself."""
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

    def _can_go_on(self, source: Source, demand: Demand) -> bool:
        if demand.state is State.UNKNOWN:
            return self._could_use(source)
        return demand.state is State.READY and self._room(source) > 0

    # -- receiving -------------------------------------------------------------------------------------------------

    def _room(self, source: Source) -> int:
        """How many messages to ask for. Not before half of what may wait here has been used up: receives are cheaper
        in large pieces."""
        slots = self._sources[source]
        capacity = slots.capacity
        target = source.target(capacity)
        source.low_water = max((target - capacity * source.at_once) // 2, source.at_once - 1)
        if self._priority_slots is None and len(source.buffer) > source.low_water:
            return 0
        # A handler that waits for another message holds its own, but no slot.
        return target - source.held + (slots.unfinished - slots.busy) * source.at_once

    def _receive(self, source: Source, room: int) -> None:
        demand, slots = self._demands[source], self._sources[source]
        if demand.state is not State.READY or not source.accepted:
            source.low_water = -1 if demand.state is State.EMPTY else source.low_water
            return
        if room <= 0:
            slots.grow()
            return
        asked_at = time.monotonic()
        receipt = self._engine.receive(source.name, source.group, self._consumer, room, source.policy.lease_seconds)
        demand.received(len(receipt.rows), room)
        if slots.can_grow:
            demand.doubted()
        if receipt.rows:
            source.add(receipt, asked_at)
            slots.kick()

    def _receive_by_priority(self, priority_slots: PrioritySlots) -> None:
        """Slots that all queues share go to the best priority of any of them."""
        waiting = sum(-(-len(source.buffer) // source.at_once) for source in self._sources)
        free = priority_slots.most - priority_slots.running - waiting
        ready = [source for source, demand in self._demands.items() if demand.state is State.READY and source.accepted]
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

    def _offer(self, source: Source, free: int) -> Offer:
        """The priorities of the calls that a queue could start with the free slots."""
        calls = min(free, self._room(source) // source.at_once)
        running = self._sources[source].busy
        if calls <= 0:
            return Offer([], running, source.granted_at)
        nearest = self._engine.peek(source.name, source.group, calls * source.at_once)
        return Offer([one.priority for one in nearest[:: source.at_once]], running, source.granted_at)
