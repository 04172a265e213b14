"""How calls reach the engine from an event loop: changes gathered into transactions on one thread, reads on another,
so that looking never waits for a commit. `client/calling.py` is the synchronous counterpart."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, TypeVar

from penstock.client.aio.call import Answer, Call
from penstock.client.aio.gathering import Gatherer, run_each
from penstock.client.aio.grouping import ALONE, can_merge, merge_items, merge_receives, run_together
from penstock.client.aio.watching import Watcher
from penstock.client.consignment import left_open
from penstock.client.slot import current_slot
from penstock.client.tracing import Finish, Tracing
from penstock.domain.errors import StoreUnavailable
from penstock.domain.identity import made_id
from penstock.domain.lifecycle import Event
from penstock.domain.message import PLAIN, Draft
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import CREATED_AT, ID, POSITION, Engine, Receipt, Row

T = TypeVar("T")
MOST_KEPT = 1_000


class AsyncCalls:
    """Cancelling a task that awaits a call takes the call back if it has not begun; one that has begun is finished,
    and its outcome is dropped. A receive that was cancelled too late lets its messages go again."""

    # Set by whoever traces this store.
    tracing: Tracing | None = None

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = loop = asyncio.get_running_loop()
        self._writes = Gatherer(loop, "penstock-writer", partial(run_together, engine), waits=True)
        self._reads = Gatherer(loop, "penstock-reader", run_each)
        self._watcher = Watcher(loop, engine, lambda operation: self._reads.submit(Call(operation)))
        self._closing: asyncio.Task[None] | None = None
        self._operations: dict[tuple[str, ...], Callable[..., Any]] = {}

    def _run(self, operation: Callable[[], T]) -> asyncio.Future[T]:
        self._check()
        return self._writes.submit(Call(operation))

    def _run_alone(self, operation: Callable[[], T]) -> asyncio.Future[T]:
        """For what may take long or makes transactions of its own: never gathered with others."""
        self._check()
        return self._writes.submit(Call(operation, key=ALONE))

    def _read(self, operation: Callable[[], T]) -> asyncio.Future[T]:
        self._check()
        return self._reads.submit(Call(operation))

    def _post(self, call: Call, answer: Answer, *, reads: bool = False) -> None:
        """For a server, which lives on the store's own loop and tells its clients otherwise than by futures."""
        if self._closing is not None:
            raise StoreUnavailable("this store was closed")
        (self._reads if reads else self._writes).post(call, answer)

    def _send(self, queue: str, messages: list[Draft], transaction: object) -> asyncio.Future[list[str]]:
        """With the caller's transaction it runs right here, on the event loop: the transaction holds the write lock, so
        the thread could not begin before it ends, and the connection is the caller's to use. It is quick, because what
        takes long is the commit, and that is the caller's."""
        self._check()
        if self.tracing is not None and messages:
            messages, finish = self.tracing.sending(queue, messages)
            sent = self._put(queue, messages, transaction)
            sent.add_done_callback(partial(_finish, finish))
            return sent
        return self._put(queue, messages, transaction)

    def _put(self, queue: str, messages: list[Draft], transaction: object) -> asyncio.Future[list[str]]:
        if transaction is not None or not messages:
            ids: asyncio.Future[list[str]] = self._loop.create_future()
            ids.set_result(self.engine.send(queue, messages, transaction) if messages else [])
            return ids
        key = ("send", queue)
        send = self._kept(key, self.engine.send)
        if len(messages) == 1 and messages[0][2] is PLAIN:
            return self._writes.share(send, messages[0], key, merge_items)
        if can_merge(messages):
            return self._writes.submit(Call(send, messages, key, merge_items))
        return self._writes.submit(Call(send, messages))

    def _kept(self, key: tuple[str, ...], verb: Callable[..., T]) -> Callable[..., T]:
        """The verb with what its key names: kept, because it is needed for every message and has to be the same one for
        callers to share a call."""
        found = self._operations.get(key)
        if found is None:
            if len(self._operations) >= MOST_KEPT:
                self._operations.clear()
            found = self._operations[key] = partial(verb, *key[1:])
        return found

    async def _receive(
        self, queue: str, group: str | None, consumer: str, limit: int, lease_seconds: float | None
    ) -> Receipt:
        self._check()
        operation = partial(self.engine.receive, queue, group, consumer, limit, lease_seconds)
        key = ("receive", queue, group)
        receipt: Receipt = await self._writes.answer(
            Call(operation, None, key, merge_receives, unwanted=self._let_go, weight=limit)
        )
        return receipt

    def _let_go(self, receipt: Receipt) -> None:
        """Give back what was received for a task that was cancelled meanwhile, without counting an attempt. Should
        this fail, the lease ends by itself."""
        if receipt.rows:
            settles = [_release(row, receipt) for row in receipt.rows]
            released = self._writes.submit(Call(partial(self.engine.settle, receipt.queue, receipt.group), settles))
            released.add_done_callback(lambda done: done.exception())

    def _settle(self, queue: str, group: str, settles: list[Settle]) -> asyncio.Future[list[Settled]]:
        self._check()
        key = ("settle", queue, group)
        settle = self._kept(key, self.engine.settle)
        if len(settles) == 1:
            return self._writes.share(settle, settles[0], key, merge_items)
        return self._writes.submit(Call(settle, settles, key, merge_items))

    def _ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> asyncio.Future[bool]:
        self._check()
        key = ("ack_all", queue, group, token)
        return self._writes.submit(Call(partial(self.engine.ack_all, queue, group, token), positions, key))

    async def _wait(self, awaited: Hashable, ready_in: Callable[[], float | None], timeout_seconds: float) -> None:
        """Until `ready_in` says 0 or the time is up; it says None when only a commit can change that. Equal `awaited`
        means that the same thing is waited for: it is looked at once for all."""
        self._check()
        await self._watcher.until(awaited, ready_in, timeout_seconds)

    def _leave_slot(self) -> None:
        """A handler of a worker gives its slot back before it waits."""
        slot = current_slot.get()
        if slot is not None:
            slot.leave()

    async def _enter_slot(self) -> None:
        slot = current_slot.get()
        if slot is not None:
            await slot.enter_async()

    async def _close(self) -> None:
        """Finish what was begun, wake those who wait, and leave no threads. Goes on even if its task is cancelled."""
        self._check_loop()
        if self._closing is None:
            for producer in left_open(self.engine):
                await producer._leave()
        if self._closing is None:
            self._closing = self._loop.create_task(self._shut())
        await asyncio.shield(self._closing)

    async def _shut(self) -> None:
        self._watcher.stop()
        await self._reads.drain()
        # Twice, because a receive that nobody awaits any more is answered by letting its messages go.
        await self._writes.drain()
        closing: asyncio.Future[Any] = self._writes.submit(Call(self.engine.close, key=ALONE))
        try:
            await closing
        finally:
            await self._watcher.end()
            for gatherer in (self._reads, self._writes):
                gatherer.end()
                gatherer.join()

    def _check(self) -> None:
        if self._closing is not None:
            raise StoreUnavailable("this store was closed")
        self._check_loop()

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "this store belongs to another event loop: call penstock.connect_async in the loop that uses it"
            )


def _finish(finish: Finish, sent: asyncio.Future[list[str]]) -> None:
    if sent.cancelled():
        finish(None, asyncio.CancelledError())
    elif (error := sent.exception()) is not None:
        finish(None, error)
    else:
        finish(sent.result(), None)


def _release(row: Row, receipt: Receipt) -> Settle:
    message_id = row[ID] or made_id(row[CREATED_AT], receipt.salt, row[POSITION])
    return Settle(Event.RELEASE, message_id, row[POSITION], receipt.token, "the receive was cancelled")
