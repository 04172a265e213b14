"""Blocked clients: one wait list for each group of a queue, however many clients wait there, served first come first
served.

A wait list waits in the store's watcher, which polls once for all clients. When messages are ready it receives for the
first clients, for more of them at a time as long as there are enough messages. A disconnected client is removed before
a receive; messages that were already received for it are released.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from penstock.domain.errors import PenstockError
from penstock.engines.contract import Receipt
from penstock.servers.resp.backend import Backend
from penstock.servers.resp.encoder import Reply
from penstock.servers.resp.errors import CommandError
from penstock.servers.resp.pending import BlockingCall, Pending

logger = logging.getLogger("penstock.resp")
# A wait without timeout is restarted after this time.
LONG_SECONDS = 3600.0
# Pause after an empty receive although messages seemed to be ready.
PAUSE_SECONDS = 0.05
# Only expired messages, or due ones that are not promoted yet, are ready: wait for a sweep.
UNSWEPT_SECONDS = 1.0
# Clients served in one transaction, which holds the write lock.
MAX_AT_ONCE = 64


# A queue, a group of it, and whether the group must exist.
Place = tuple[str, str | None, bool]


class Client(Protocol):
    def is_connected(self) -> bool:
        """Whether it is still connected."""

    def may_receive(self, queue: str) -> bool:
        """Whether its user still has the right."""

    def answer(self, reply: Reply | Pending) -> None: ...


class Waiter:
    """A blocked client and its call. It may be in several wait lists; `busy` while one of them receives for it."""

    __slots__ = ("busy", "call", "client", "is_done", "is_late", "lists", "timer")

    def __init__(self, client: Client, call: BlockingCall) -> None:
        self.client = client
        self.call = call
        self.lists: list[WaitList] = []
        self.busy = False
        self.is_done = False
        self.is_late = False
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_listener(self) -> bool:
        """Whether it waits for a notification, rather than for messages."""
        return self.call.receive is None

    def answer(self, reply: Reply | Pending) -> None:
        if not self.is_done:
            self.leave()
            self.client.answer(reply)

    def leave(self) -> None:
        """Remove it from the wait lists: it got its reply or has disconnected."""
        self.is_done = True
        if self.timer is not None:
            self.timer.cancel()
        for wait_list in self.lists:
            wait_list.remove(self)

    def time_out(self) -> None:
        self.is_late = True
        if not self.busy:
            self.answer(self.call.empty)


class WaitList:
    def __init__(
        self, backend: Backend, place: Place, emptied: Callable[[WaitList], None], changed: Callable[[], None]
    ) -> None:
        """`changed` is called when the number of listeners changes."""
        self.backend = backend
        self.place = place
        self.queue, self.group, self.needs_group = place
        self._emptied = emptied
        self._changed = changed
        self.waiters: dict[Waiter, None] = {}
        self.listeners = 0
        self._task = asyncio.get_running_loop().create_task(self._serve())

    def add(self, waiter: Waiter) -> None:
        self.waiters[waiter] = None
        waiter.lists.append(self)
        if waiter.is_listener:
            self.listeners += 1
            self._changed()

    def remove(self, waiter: Waiter) -> None:
        if waiter not in self.waiters:
            return
        del self.waiters[waiter]
        if waiter.is_listener:
            self.listeners -= 1
            self._changed()
        if not self.waiters:
            self._task.cancel()
            self._emptied(self)

    async def _serve(self) -> None:
        queue = self.queue
        while self.waiters:
            try:
                await self.backend.store.executor.wait(self.place, self._ready_in, LONG_SECONDS)
                served = await self._serve_waiters()
            except PenstockError as error:
                logger.warning("waiting clients of queue %r: %s", queue, error)
                served = False
            if not served:
                await asyncio.sleep(PAUSE_SECONDS)

    def _ready_in(self) -> float | None:
        """A group that was removed is ready, too: its clients get an error."""
        engine = self.backend.engine
        if self.needs_group and self.group not in engine.groups(self.queue):
            return 0
        seconds = engine.ready_in(self.queue, self.group)
        if seconds == 0 and self.group is not None and self.listeners == len(self.waiters):
            # Only a receive skips expired messages, and listeners must not be notified of those.
            return 0 if engine.peek(self.queue, self.group, 1) else UNSWEPT_SECONDS
        return seconds

    async def _serve_waiters(self) -> bool:
        """Serve waiters until nothing is left, and return whether any was served."""
        served = self._notify()
        at_once = 1
        while front := self._front(at_once):
            received = await asyncio.gather(*(self._receive_for(waiter) for waiter in front))
            served = served or any(received)
            if not all(received):
                break
            at_once = min(2 * at_once, MAX_AT_ONCE)
        return served

    def _notify(self) -> bool:
        listeners = [waiter for waiter in self.waiters if waiter.is_listener]
        for waiter in listeners:
            waiter.answer(waiter.call.deal(self.queue, None))
        return bool(listeners)

    def _front(self, count: int) -> list[Waiter]:
        """The first `count` that are still connected and may still receive."""
        front: list[Waiter] = []
        for waiter in list(self.waiters):
            if len(front) == count:
                break
            if waiter.busy:
                continue
            if not waiter.client.is_connected():
                waiter.leave()
            elif not waiter.client.may_receive(self.queue):
                waiter.answer(PenstockError(f"no right to receive from queue {self.queue!r} any more"))
            else:
                front.append(waiter)
        return front

    async def _receive_for(self, waiter: Waiter) -> bool:
        assert waiter.call.receive is not None
        waiter.busy = True
        pending = waiter.call.receive(self.queue)
        executor = self.backend.store.executor
        try:
            assert pending.items is not None
            # Shielded: the last waiter that leaves cancels this task, but received messages must not be lost.
            receiving = asyncio.ensure_future(
                executor.coalesce_or_discard(pending.operation, pending.items, pending.weight)
            )
            receiving.add_done_callback(lambda done: self._deal(waiter, done))
            [receipts] = await asyncio.shield(receiving)
        except CommandError:
            return True  # the error is the reply
        except PenstockError:
            return False
        return any(receipt.rows for receipt in receipts)

    def _deal(self, waiter: Waiter, done: asyncio.Future[list[list[Receipt]]]) -> None:
        waiter.busy = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            waiter.answer(error)
            return
        [receipts] = done.result()
        has_any = any(receipt.rows for receipt in receipts)
        if has_any and (waiter.is_done or not waiter.client.is_connected()):
            self.backend.release(receipts)
            waiter.leave()
        elif has_any:
            waiter.answer(waiter.call.deal(self.queue, receipts))
        elif waiter.is_late:
            waiter.answer(waiter.call.empty)


class WaitLists:
    """All wait lists of a server."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._lists: dict[Place, WaitList] = {}
        # Called when the number of listeners changes.
        self.changed: Callable[[], None] = lambda: None

    def block(self, client: Client, call: BlockingCall) -> Waiter:
        waiter = Waiter(client, call)
        for queue in dict.fromkeys(call.queues):
            self._list((queue, call.group, call.needs_group)).add(waiter)
        if call.seconds is not None:
            loop = asyncio.get_running_loop()
            waiter.timer = loop.call_later(call.seconds, waiter.time_out)
        return waiter

    def listeners(self) -> dict[tuple[str, str], int]:
        """How many clients wait for a notification, by queue and group."""
        counts = {(one.queue, one.group): one.listeners for one in self._lists.values() if one.group is not None}
        return {place: count for place, count in counts.items() if count}

    def _list(self, place: Place) -> WaitList:
        found = self._lists.get(place)
        if found is None:
            found = self._lists[place] = WaitList(self._backend, place, self._drop, lambda: self.changed())
        return found

    def _drop(self, wait_list: WaitList) -> None:
        if self._lists.get(wait_list.place) is wait_list:
            del self._lists[wait_list.place]

    def count(self) -> int:
        """How many clients are blocked."""
        return len({waiter for one in self._lists.values() for waiter in one.waiters})
