"""Slots that are threads, for plain functions.

A thread is busy while the buffer has items, which it takes without a lock. Threads are started on demand and end when
they have been idle for a while.
"""

from __future__ import annotations

import threading
import time

from penstock.client.slot import current_slot
from penstock.workers.calls import CallResult, finish, handle
from penstock.workers.lease_batch import AnyDelivery, Item
from penstock.workers.slots import Slots, WorkSlot
from penstock.workers.source import QueueSource

IDLE_SECONDS = 10.0


class ThreadSlot(WorkSlot):
    def __init__(self, slots: ThreadSlots, number: int) -> None:
        super().__init__()
        self.slots = slots
        name = f"penstock-{slots.source.name}-{number}"
        self.thread = threading.Thread(target=slots.work, args=(self,), name=name, daemon=True)

    def leave(self) -> None:
        self.slots.leave(self)

    def enter(self) -> None:
        self.slots.enter(self)

    async def enter_async(self) -> None:
        """For handlers that run their own event loop in the thread: it has nothing else to do meanwhile."""
        self.slots.enter(self)


class ThreadSlots(Slots):
    """A thread whose call is given up runs until its handler returns. With more such threads than `concurrency`, no
    call is started until one has ended."""

    idle_seconds = IDLE_SECONDS

    def __init__(self, source: QueueSource) -> None:
        super().__init__(source)
        self._changed = threading.Condition()
        self._slots: set[ThreadSlot] = set()
        self._stuck: set[ThreadSlot] = set()
        self._idle = 0
        self._returning = 0

    @property
    def capacity(self) -> int:
        return 0 if self.is_stuck else self.source.concurrency

    @property
    def stuck(self) -> int:
        return len(self._stuck)

    @property
    def is_stuck(self) -> bool:
        return len(self._stuck) > self.source.concurrency

    def running(self) -> list[WorkSlot]:
        with self._changed:
            return [slot for slot in self._slots if slot.several]

    def notify(self) -> None:
        ready = len(self.source.buffer)
        if not ready and not self._returning:
            return
        with self._changed:
            wanted = min(-(-ready // self.source.at_once), self.capacity - self._busy)
            self._changed.notify(max(0, min(self._idle, wanted)) + self._returning)
            for _ in range(wanted - self._idle):
                self._spawn()

    def stop(self) -> None:
        with self._changed:
            self._stopping = True
            self._changed.notify_all()

    # -- giving up -------------------------------------------------------------------------------------------------

    def give_up(self, slot: WorkSlot, reason: str) -> list[AnyDelivery]:
        """A thread cannot be killed: it is abandoned, and the outcome of its call is ignored."""
        several = slot.give_up(reason)
        if not several:
            return []
        assert isinstance(slot, ThreadSlot)
        with self._changed:
            self._slots.discard(slot)
            self._count_out(slot)
            self._abandon(slot)
            self._changed.notify_all()
        if not slot.away:
            self._free_priority_slot()
        self.notify()
        return several

    def _abandon(self, slot: ThreadSlot) -> None:
        """Called with the lock held."""
        self._stuck.add(slot)

    # -- waiting for other messages --------------------------------------------------------------------------------

    def leave(self, slot: ThreadSlot) -> None:
        with self._changed:
            if slot.given_up is not None or not slot.several:
                return
            self._count_away(slot)
        self._free_priority_slot()
        self.notify()
        self.source.wake()

    def enter(self, slot: ThreadSlot) -> None:
        if not slot.away:
            return
        with self._changed:
            self._returning += 1
            try:
                while slot.given_up is None and not self._has_room(slot.priority):
                    self._changed.wait(IDLE_SECONDS)
            finally:
                self._returning -= 1
            self._count_back(slot)

    def _has_room(self, priority: int) -> bool:
        if self._busy >= self.source.concurrency:
            return False
        return self.source.priority_slots is None or self.source.priority_slots.enter(priority)

    # -- the threads -----------------------------------------------------------------------------------------------

    def _spawn(self) -> None:
        """Called with the lock held."""
        slot = ThreadSlot(self, len(self._slots) + 1)
        self._slots.add(slot)
        self._idle += 1
        slot.thread.start()

    def work(self, slot: ThreadSlot) -> None:
        current_slot.set(slot)
        try:
            while self._become_busy():
                self._drain(slot)
                if slot.given_up is not None:
                    return
                with self._changed:
                    self._busy -= 1
                    if self._returning:
                        self._changed.notify_all()
                    if slot.is_over:
                        return
                    self._idle += 1
                if self._stopping:
                    self.source.wake()
        except BaseException as error:
            self.source.fail(error)
        finally:
            self._dismiss(slot)

    def _become_busy(self) -> bool:
        """Wait for an item and a free slot; returns False when the thread should end."""
        with self._changed:
            since = time.monotonic()
            while True:
                now = time.monotonic()
                remaining = since + self.idle_seconds - now
                more = self._startable_in(now)
                if more == 0:
                    self._idle -= 1
                    self._busy += 1
                    return True
                if self._stopping or remaining <= 0:
                    self._idle -= 1
                    return False
                self._changed.wait(remaining if more is None else more)

    def _startable_in(self, now: float) -> float | None:
        """Seconds until a call may start, None for not before a notification. Called with the lock held."""
        source = self.source
        if self._busy >= self.capacity or self._returning or not source.may_start():
            return None
        return 0 if self._stopping else source.waits_for_more(now)

    def _drain(self, slot: ThreadSlot) -> None:
        """Run buffered items until there are none, or until a returning handler needs the slot."""
        source = self.source
        if source.priority_slots is None and source.handler.batch_size is None and not source.policy.ordered:
            # The hot path: every microsecond counts for each message.
            pop, run = source.buffer.pop, self._run
            while not self._returning and not slot.is_over and (item := pop()) is not None:
                run(slot, item)  # type: ignore[arg-type]  # only ordered queues have shards as items
            return
        while not self._returning and not slot.is_over:
            item = source.next_item()
            if item is None:
                return
            self._run_item(slot, item)
            if slot.given_up is None:
                self._free_priority_slot()
            if source.handler.batch_seconds and source.waits_for_more(time.monotonic()) > 0:
                return

    def _run_item(self, slot: ThreadSlot, item: Item) -> None:
        calls = handle(self.source, slot, item, lambda: self._stopping)
        arguments = next(calls, None)
        while arguments is not None:
            try:
                answer = CallResult(self.call(*arguments))
            except BaseException as error:
                answer = CallResult(error, error)
            try:
                arguments = calls.send(answer)
            except StopIteration:
                return

    def _run(self, slot: ThreadSlot, delivery: AnyDelivery) -> None:
        """Handle one message on the hot path."""
        source = self.source
        began_at = time.monotonic()
        if not source.begins(delivery, began_at):
            return
        several = [delivery]
        slot.begin(several, began_at)
        try:
            answer = CallResult(self.call(delivery))
        except BaseException as error:
            answer = CallResult(error, error)
        finish(source, slot, several, answer, began_at)

    def _dismiss(self, slot: ThreadSlot) -> None:
        """Remove the slot of a thread that ends."""
        with self._changed:
            self._slots.discard(slot)
            was_stuck = self.is_stuck
            self._stuck.discard(slot)
        if was_stuck:
            self.notify()
            self.source.wake()
