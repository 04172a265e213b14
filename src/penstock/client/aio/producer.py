"""A producer batches sends: fewer transactions, at the price of a short delay."""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from penstock.client.producer import PAUSE_SECONDS
from penstock.client.producer_batch import (
    Gathered,
    ProducerBatch,
    logger,
    refusal,
    unwatch,
    warn_late,
    warn_lost,
    watch,
)
from penstock.domain.errors import StoreError
from penstock.domain.message import Outgoing, SendOptions, draft
from penstock.domain.validation import check_integer, check_seconds
from penstock.engines.contract import Engine

if TYPE_CHECKING:
    from penstock.client.aio.queue import AsyncQueue


class AsyncProducer:
    """Made by `queue.producer(...)`; used in an `async with` block, which sends what is left at its end. It promises
    what `Producer` does; a timer takes the place of its thread."""

    def __init__(self, queue: AsyncQueue, batch_size: int, linger_seconds: float) -> None:
        self.queue = queue
        self.batch_size = check_integer("batch_size", batch_size, 1, 1_000_000)
        self.linger_seconds = check_seconds("linger_seconds", linger_seconds)
        self._waiting: list[Gathered] = []
        self._batch = ProducerBatch(())
        self._refused: list[Gathered] = []
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._putting: asyncio.Task[None] | None = None
        self._lingering: asyncio.Task[None] | None = None  # only kept so that it is not collected

    async def send(self, payload: Any, **options: Unpack[SendOptions]) -> Gathered:
        """Add one message to the batch, which is sent when it is full. The options are those of `queue.send`."""
        is_bare = not options or isinstance(payload, Outgoing)
        gathered = Gathered(draft(payload if is_bare else Outgoing(payload=payload, **options)))
        self._check_open()
        while self._is_full():
            await self._put()
            self._check_open()
        self._tell_refused()
        self._waiting.append(gathered)
        watch(self)
        if self._is_full():
            await self._try_to_put()
        else:
            self._linger_for(self.linger_seconds)
        return gathered

    async def flush(self) -> None:
        """Send the batch now."""
        await self._put()
        self._tell_refused()

    async def close(self) -> None:
        """Send what is left and stop; an error leaves the producer usable, so that close can be called again."""
        await self.flush()
        self._stop()

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        finally:
            self._stop()

    @property
    def _engine(self) -> Engine:
        return self.queue.engine

    @property
    def _left(self) -> int:
        """How many messages are neither sent nor refused."""
        return len(self._waiting) + len(self._batch)

    async def _leave(self) -> None:
        """Flush, because the store is being closed."""
        count = self._left
        try:
            await self.flush()
        except Exception as error:
            warn_lost(error)
        else:
            warn_late(count)

    def _put_at_exit(self) -> None:
        """Send through the engine: the event loop has ended."""
        for batch in (self._batch, ProducerBatch(self._waiting)):
            batch.put(self._engine, self.queue.name)
            self._refused += batch.refused
        self._waiting = []
        self._tell_refused()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this producer is closed")

    def _is_full(self) -> bool:
        return self._left >= self.batch_size

    async def _put(self) -> None:
        """A send that has begun goes on when its caller is cancelled: others await it too."""
        while self._batch or self._waiting or self._putting is not None:
            if self._putting is None:
                self._putting = asyncio.create_task(self._put_once())
                self._putting.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(self._putting)

    async def _put_once(self) -> None:
        """A batch that was tried before is sent first and alone: it may be in the queue already."""
        try:
            if not self._batch:
                self._batch, self._waiting = ProducerBatch(self._waiting), []
            await self.queue.executor.write(partial(self._batch.put, self.queue.engine, self.queue.name), alone=True)
        except BaseException:
            self._linger_for(max(self.linger_seconds, PAUSE_SECONDS))
            raise
        finally:
            self._refused += self._batch.refused
            self._batch.refused.clear()
            self._putting = None
        if not self._waiting:
            unwatch(self)

    async def _try_to_put(self) -> None:
        """Send messages that were accepted already: after an error they stay, and the next call raises it."""
        try:
            await self._put()
        except StoreError as error:
            logger.warning("messages for queue %r wait in a producer: %s", self.queue.name, error)

    def _tell_refused(self) -> None:
        if self._refused:
            refused, self._refused = self._refused, []
            raise refusal(refused)

    def _linger_for(self, seconds: float) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._linger)

    def _linger(self) -> None:
        self._timer = None
        if self._waiting or self._batch:
            self._lingering = asyncio.create_task(self._try_to_put())

    def _stop(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting and not self._batch:
            unwatch(self)
