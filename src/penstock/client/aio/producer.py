"""A producer gathers sends and puts them in together: fewer transactions, at the price of a short wait."""

from __future__ import annotations

import asyncio
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.client.consignment import Consignment, Gathered, let_go, logger, refusal, say_late, say_lost, watch
from penstock.client.producer import PAUSE_SECONDS
from penstock.domain.errors import StoreError
from penstock.domain.message import Outgoing, draft
from penstock.domain.times import check_integer, check_seconds
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
        self._consignment = Consignment(())
        self._refused: list[Gathered] = []
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._putting: asyncio.Task[None] | None = None
        self._lingering: asyncio.Task[None] | None = None  # only kept so that it is not collected

    async def send(self, payload: Any, **options: Any) -> Gathered:
        """Gather one message; the options are those of `queue.send`. Sends at once when the batch is full."""
        outgoing = payload if isinstance(payload, Outgoing) else Outgoing(payload=payload, **options)
        gathered = Gathered(draft(outgoing))
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
        """Send what was gathered, now."""
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
        """How many messages are not known to be in the queue or refused."""
        return len(self._waiting) + len(self._consignment)

    async def _leave(self) -> None:
        """The store is closed under it."""
        count = self._left
        try:
            await self.flush()
        except Exception as error:
            say_lost(error)
        else:
            say_late(count)

    def _put_at_exit(self) -> None:
        """The event loop is gone; the engine is not."""
        for consignment in (self._consignment, Consignment(self._waiting)):
            consignment.put(self._engine, self.queue.name)
            self._refused += consignment.refused
        self._waiting = []
        self._tell_refused()

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("this producer is closed")

    def _is_full(self) -> bool:
        return self._left >= self.batch_size

    async def _put(self) -> None:
        """Being cancelled does not stop a send that has begun: others wait for it too."""
        while self._consignment or self._waiting or self._putting is not None:
            if self._putting is None:
                self._putting = asyncio.create_task(self._put_once())
                self._putting.add_done_callback(lambda done: done.cancelled() or done.exception())
            await asyncio.shield(self._putting)

    async def _put_once(self) -> None:
        """What was tried before goes first, and alone: nothing may join what may be in already."""
        try:
            if not self._consignment:
                self._consignment, self._waiting = Consignment(self._waiting), []
            await self.queue.store._run_alone(partial(self._consignment.put, self.queue.engine, self.queue.name))
        except BaseException:
            self._linger_for(max(self.linger_seconds, PAUSE_SECONDS))
            raise
        finally:
            self._refused += self._consignment.refused
            self._consignment.refused.clear()
            self._putting = None
        if not self._waiting:
            let_go(self)

    async def _try_to_put(self) -> None:
        """For messages that are taken already: they stay, and whoever comes next is told."""
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
        if self._waiting or self._consignment:
            self._lingering = asyncio.create_task(self._try_to_put())

    def _stop(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._waiting and not self._consignment:
            let_go(self)
