"""How calls reach the engine from an event loop: writes are coalesced into shared transactions on one thread, reads run
on another, so that a read never waits for a commit. `client/executor.py` is the synchronous counterpart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, TypeVar

from penstock.client.aio import caller_transaction
from penstock.client.aio.call import Completion, Operation, Phase
from penstock.client.aio.coalescer import Coalescer, commit, run_each
from penstock.client.aio.watcher import Watcher
from penstock.client.producer_batch import left_open
from penstock.client.slot import current_slot
from penstock.client.tracing import Finish, Tracing
from penstock.domain.errors import StoreUnavailable
from penstock.domain.lifecycle import Event
from penstock.domain.message import Draft, can_refuse
from penstock.domain.settlement import Settle, Settled
from penstock.engines.contract import POSITION, Engine, Receipt

T = TypeVar("T")
MAX_OPERATIONS = 1_000


class AsyncExecutor:
    """The one way to the engine, used by `AsyncStore` and by the servers.

    Cancelling a task that awaits a call withdraws the call if it has not begun. A call that has begun is finished and
    its outcome is dropped; a receive that was cancelled too late releases its messages.
    """

    # Set by `penstock.trace`.
    tracing: Tracing | None = None

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._loop = loop = asyncio.get_running_loop()
        self._writes = Coalescer(loop, "penstock-writer", partial(commit, engine), waits=True)
        self._reads = Coalescer(loop, "penstock-reader", run_each)
        self._watcher = Watcher(loop, engine, lambda operation: self._reads.call(Operation(operation)))
        self._closing: asyncio.Task[None] | None = None
        # Cached, because only calls of the identical operation are coalesced.
        self._sending = lru_cache(MAX_OPERATIONS)(self._make_send)
        self._receiving = lru_cache(MAX_OPERATIONS)(self._make_receive)
        self.settlement = lru_cache(MAX_OPERATIONS)(self._make_settle)

    # -- any call --------------------------------------------------------------------------------------------------

    def read(self, operation: Callable[[], T]) -> asyncio.Future[T]:
        """Run the operation on the reader's thread."""
        self._check()
        return self._reads.call(Operation(operation, Phase.READ))

    def write(self, operation: Callable[[], T], *, alone: bool = False) -> asyncio.Future[T]:
        """Run the operation on the writer's thread, in a transaction that it may share with other calls. `alone` is for
        operations that take long or begin their own transactions."""
        self._check()
        return self._writes.call(Operation(operation, Phase.ALONE if alone else Phase.WRITE))

    def coalesce(self, operation: Operation, items: list[Any], weight: int | None = None) -> asyncio.Future[list[Any]]:
        """Run the operation on the writer's thread, as one with all pending calls of it. The future gets a result per
        item; `weight` is the number of messages, if that is not the number of items."""
        self._check()
        return self._writes.call(operation, items, len(items) if weight is None else weight)

    def submit(self, operation: Operation, items: list[Any] | None, completion: Completion, weight: int) -> None:
        """As `read`, `write` or `coalesce`, by the operation's phase, for a server on the store's loop that needs no
        future."""
        if self._closing is not None:
            raise StoreUnavailable("this store was closed")
        coalescer = self._reads if operation.phase is Phase.READ else self._writes
        coalescer.submit(operation, items, completion, weight)

    async def coalesce_or_discard(self, operation: Operation, items: list[Any], weight: int) -> list[Any]:
        """As `coalesce`, for an operation with `discard`."""
        self._check()
        results: list[Any] = await self._writes.result(operation, items, weight)
        return results

    async def wait(self, key: Hashable, ready_in: Callable[[], float | None], timeout_seconds: float) -> None:
        """Return when `ready_in` returns 0, or after the timeout. `ready_in` returns the seconds until it should be
        called again, or None when only a commit can change its answer. It is called once for all waiters with the same
        `key`."""
        self._check()
        await self._watcher.until(key, ready_in, timeout_seconds)

    # -- verbs -----------------------------------------------------------------------------------------------------

    def send(self, queue: str, messages: list[Draft], transaction: object = None) -> Awaitable[list[str]]:
        self._check()
        if transaction is not None and messages:
            return self._send_within(queue, messages, transaction)
        if not messages:
            nothing: asyncio.Future[list[str]] = self._loop.create_future()
            nothing.set_result([])
            return nothing
        finish: Finish | None = None
        if self.tracing is not None:
            messages, finish = self.tracing.sending(queue, messages)
        if can_refuse(messages):
            sent = self._writes.call(Operation(partial(self.engine.send, queue, messages)), None, len(messages))
        else:
            sent = self._writes.call(self._sending(queue), messages, len(messages))
        if finish is not None:
            sent.add_done_callback(partial(_finish, finish))
        return sent

    async def _send_within(self, queue: str, messages: list[Draft], transaction: object) -> list[str]:
        """A send in the caller's transaction is not coalesced: that transaction may hold the write lock, and the
        writer's thread would wait for its end. It runs in the caller's task, which a session may belong to."""
        if self.tracing is None:
            return await caller_transaction.send(self.engine, queue, messages, transaction)
        messages, finish = self.tracing.sending(queue, messages)
        try:
            ids = await caller_transaction.send(self.engine, queue, messages, transaction)
        except BaseException as error:
            finish(None, error)
            raise
        finish(ids, None)
        return ids

    def _make_send(self, queue: str) -> Operation:
        return Operation(lambda messages: self.engine.send(queue, messages))

    async def receive(
        self, queue: str, group: str | None, consumer: str, limit: int, lease_seconds: float | None
    ) -> Receipt:
        request = (consumer, limit, lease_seconds)
        [receipt] = await self.coalesce_or_discard(self._receiving(queue, group), [request], limit)
        found: Receipt = receipt
        return found

    def _make_receive(self, queue: str, group: str | None) -> Operation:
        receive = partial(self._receive_each, queue, group)
        return Operation(receive, Phase.RECEIVE, ("receive", queue, group), self._release_each)

    def _receive_each(
        self, queue: str, group: str | None, requests: Sequence[tuple[str, int, float | None]]
    ) -> list[Receipt]:
        """Each by itself, because each has its own token, unless the engine shares leases; after an empty one all
        others would be empty too."""
        if len(requests) > 1 and self.engine.capabilities.shares_leases:
            lease_seconds = requests[0][2]
            if all(one == lease_seconds for _, _, one in requests):
                shares = [(consumer, limit) for consumer, limit, _ in requests]
                return self.engine.receive_each(queue, group, shares, lease_seconds)
        receipts: list[Receipt] = []
        for request in requests:
            is_empty = bool(receipts) and not receipts[-1].rows
            receipts.append(receipts[-1] if is_empty else self.engine.receive(queue, group, *request))
        return receipts

    def _release_each(self, receipts: list[Receipt]) -> None:
        for receipt in receipts:
            self.release(receipt)

    def release(self, receipt: Receipt) -> None:
        """Give back the messages of a receive whose caller is gone, without counting an attempt. If that fails, the
        lease ends by itself."""
        if receipt.rows:
            reason = "the receive was cancelled"
            settles = [
                Settle(Event.RELEASE, receipt.id_of(row), row[POSITION], receipt.token, reason) for row in receipt.rows
            ]
            release = Operation(partial(self.engine.settle, receipt.queue, receipt.group, settles))
            self._writes.call(release, None, len(settles)).add_done_callback(lambda done: done.exception())

    def settle(self, queue: str, group: str, settles: list[Settle]) -> asyncio.Future[list[Settled]]:
        return self.coalesce(self.settlement(queue, group), settles)

    def _make_settle(self, queue: str, group: str) -> Operation:
        return Operation(
            lambda settles: self.engine.settle(queue, group, settles), Phase.SETTLE, ("settle", queue, group)
        )

    def ack_all(self, queue: str, group: str, token: int, positions: list[int]) -> asyncio.Future[bool]:
        self._check()
        key = ("ack_all", queue, group, token)
        operation = Operation(partial(self.engine.ack_all, queue, group, token, positions), Phase.SETTLE, key)
        return self._writes.call(operation, None, len(positions))

    # -- slots, and the end ----------------------------------------------------------------------------------------

    def leave_slot(self) -> None:
        """Give back the worker's slot before a handler blocks."""
        slot = current_slot.get()
        if slot is not None:
            slot.leave()

    async def enter_slot(self) -> None:
        slot = current_slot.get()
        if slot is not None:
            await slot.enter_async()

    async def close(self) -> None:
        """Finish the calls under way, wake all waiters, and end the threads, even if the calling task is cancelled."""
        self._check(is_open=False)
        if self._closing is None:
            for producer in left_open(self.engine):
                await producer._leave()
        if self._closing is None:
            self._closing = self._loop.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self._watcher.stop()
        await self._reads.drain()
        # A receive that was cancelled meanwhile submits a release, which runs before the engine is closed.
        await self._writes.drain()
        try:
            await self._writes.call(Operation(self.engine.close, Phase.ALONE))
        finally:
            await self._watcher.end()
            for coalescer in (self._reads, self._writes):
                coalescer.end()
                coalescer.join()

    def _check(self, is_open: bool = True) -> None:
        if is_open and self._closing is not None:
            raise StoreUnavailable("this store was closed")
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
