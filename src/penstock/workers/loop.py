"""Slots on an event loop, for `async def` handlers; a worker has one loop in one thread.

A task handles messages until the buffer is empty. All state belongs to the loop.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from typing import Any

from penstock.client.aio.store import AsyncStore
from penstock.client.slot import current_slot
from penstock.engines.contract import Engine
from penstock.workers.calls import CallResult, handle
from penstock.workers.lease_batch import AnyDelivery, Item
from penstock.workers.slots import Slots, WorkSlot
from penstock.workers.source import QueueSource

logger = logging.getLogger("penstock.worker")
# Yield to the loop this often, also when handlers never await anything.
YIELD_SECONDS = 0.005
# A loop that does not respond for this long is blocked: nothing is received for its handlers.
BLOCKED_SECONDS = 1.0
PROBE_SECONDS = 0.2
# Limit of tasks that ignore their cancellation.
MAX_STUCK = 1_000


class SharedEngine:
    """The worker's engine for its asynchronous store, whose `close` must leave the engine open."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def close(self) -> None:
        """The worker's caller owns the engine."""


class LoopThread:
    """The event loop, its thread, and an asynchronous store on it."""

    def __init__(self, engine: Engine) -> None:
        self._engine: Any = SharedEngine(engine)
        self.loop = asyncio.new_event_loop()
        # Slots whose call was given up, until their task ends: a task may ignore its cancellation.
        self.given_up: set[LoopSlot] = set()
        self._asked_at: float | None = None
        self._is_blocked = False
        self._thread = threading.Thread(target=self._run, name="penstock-loop", daemon=True)
        self._thread.start()
        self.store: AsyncStore = asyncio.run_coroutine_threadsafe(self._open(), self.loop).result()

    async def _open(self) -> AsyncStore:
        return AsyncStore(self._engine)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

    @property
    def is_blocked(self) -> bool:
        return self._is_blocked

    def probe(self, now: float) -> bool:
        """Called regularly by another thread: schedule a callback and see whether the loop runs it. Returns whether
        `is_blocked` has changed."""
        if self._asked_at is None:
            self._asked_at = now
            self.loop.call_soon_threadsafe(self._answer)
        was_blocked, self._is_blocked = self._is_blocked, now - (self._asked_at or now) > BLOCKED_SECONDS
        return self._is_blocked != was_blocked

    def _answer(self) -> None:
        self._asked_at = None

    def close(self) -> None:
        """Let the store finish its calls, however long they take. A loop that a handler blocks cannot be closed and is
        abandoned with its thread."""
        closing = asyncio.run_coroutine_threadsafe(self._close(), self.loop)
        while not closing.done():
            concurrent.futures.wait([closing], PROBE_SECONDS)
            self.probe(time.monotonic())
            if self.is_blocked:
                logger.warning("the event loop is left behind: a handler blocks it")
                return
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    async def _close(self) -> None:
        await self.store.close()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1)
        await self.loop.shutdown_asyncgens()


class LoopSlot(WorkSlot):
    task: asyncio.Task[None]

    def __init__(self, slots: LoopSlots) -> None:
        super().__init__()
        self.slots = slots

    def leave(self) -> None:
        self.slots.leave(self)

    def enter(self) -> None:
        """After a blocking wait on the loop: no other task could run, so the slot is still free."""
        self.slots._count_back(self)

    async def enter_async(self) -> None:
        await self.slots.enter(self)


class LoopSlots(Slots):
    def __init__(self, source: QueueSource, thread: LoopThread) -> None:
        super().__init__(source)
        self._thread = thread
        self._loop = thread.loop
        self._slots: set[LoopSlot] = set()
        self._returning: list[asyncio.Future[None]] = []
        self._notified = False
        self._timer: asyncio.TimerHandle | None = None

    @property
    def capacity(self) -> int:
        return 0 if self._thread.is_blocked or self.is_stuck else self.source.concurrency

    @property
    def stuck(self) -> int:
        return sum(slot.slots is self for slot in list(self._thread.given_up))

    @property
    def is_stuck(self) -> bool:
        """Also true when a call that was given up blocks the loop."""
        thread = self._thread
        if thread.is_blocked and thread.given_up:
            return True
        return bool(thread.given_up) and self.stuck > max(MAX_STUCK, self.source.concurrency)

    def running(self) -> list[WorkSlot]:
        return [slot for slot in list(self._slots) if slot.several]

    def notify(self) -> None:
        if not self._notified:
            self._notified = True
            self._loop.call_soon_threadsafe(self._start)

    def stop(self) -> None:
        self._stopping = True
        self.notify()

    def give_up(self, slot: WorkSlot, reason: str) -> list[AnyDelivery]:
        assert isinstance(slot, LoopSlot)
        # Added before the call is given up, because its task removes it when it ends.
        self._thread.given_up.add(slot)
        several = slot.give_up(reason)
        if not several:
            self._thread.given_up.discard(slot)
            return []
        self._loop.call_soon_threadsafe(self._end, slot)
        return several

    # -- on the event loop -----------------------------------------------------------------------------------------

    def _end(self, slot: LoopSlot) -> None:
        """Cancel the handler. One that ignores the cancellation is abandoned."""
        self._slots.discard(slot)
        self._count_out(slot)
        if not slot.away:
            self._free_priority_slot()
        slot.task.cancel()
        self._start()

    def _start(self) -> None:
        self._notified = False
        source = self.source
        while self._returning and self._busy < source.concurrency:
            self._returning.pop(0).set_result(None)
            self._busy += 1  # reserved for the returning handler, before new ones
        ready = len(source.buffer)
        if self.is_stuck or not source.may_start():
            return
        more = 0 if self._stopping else source.waits_for_more(time.monotonic())
        if more > 0:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(more, self._start)
            return
        for _ in range(min(-(-ready // source.at_once), source.concurrency - self._busy)):
            slot = LoopSlot(self)
            self._slots.add(slot)
            self._busy += 1
            slot.task = self._loop.create_task(self._work(slot))

    async def _work(self, slot: LoopSlot) -> None:
        current_slot.set(slot)
        try:
            await self._drain(slot)
        except Exception as error:
            self.source.fail(error)
        finally:
            self._thread.given_up.discard(slot)
        if slot.given_up is None:
            self._slots.discard(slot)
            self._busy -= 1
            if self._stopping:
                self.source.wake()
            self._start()

    async def _drain(self, slot: LoopSlot) -> None:
        source = self.source
        yielded_at = time.monotonic()
        while not self._returning and not slot.is_over:
            item = source.next_item()
            if item is None:
                return
            await self._run_item(slot, item)
            if slot.given_up is None:
                self._free_priority_slot()
            if source.handler.batch_seconds and source.waits_for_more(time.monotonic()) > 0:
                return
            if time.monotonic() - yielded_at > YIELD_SECONDS:
                await asyncio.sleep(0)
                yielded_at = time.monotonic()

    async def _run_item(self, slot: LoopSlot, item: Item) -> None:
        calls = handle(self.source, slot, item, lambda: self._stopping)
        arguments = next(calls, None)
        while arguments is not None:
            try:
                answer = CallResult(await self.call(*arguments))
            except BaseException as error:
                answer = CallResult(error, error)
            try:
                arguments = calls.send(answer)
            except StopIteration:
                return

    # -- waiting for other messages --------------------------------------------------------------------------------

    def leave(self, slot: LoopSlot) -> None:
        if slot.given_up is None and slot.several:
            self._count_away(slot)
            self._free_priority_slot()
            self._start()
            self.source.wake()

    async def enter(self, slot: LoopSlot) -> None:
        """Returning handlers take precedence over new ones."""
        if not slot.away:
            return
        priority_slots = self.source.priority_slots
        while True:
            turn: asyncio.Future[None] = self._loop.create_future()
            self._returning.append(turn)
            self._start()
            try:
                await turn
            except asyncio.CancelledError:
                if turn in self._returning:
                    self._returning.remove(turn)
                raise
            self._busy -= 1
            if priority_slots is None or priority_slots.enter(slot.priority):
                break
            await asyncio.sleep(YIELD_SECONDS)
        self._count_back(slot)
