"""A producer gathers sends and puts them in together: fewer transactions, at the price of a short wait."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any

from penstock.domain.message import Draft, Outgoing, draft
from penstock.domain.times import check_integer, check_seconds

if TYPE_CHECKING:
    from penstock.client.aio.queue import AsyncQueue


class AsyncProducer:
    """Made by `queue.producer(...)`; used in an `async with` block, which sends what is left at its end.

    A timer sends what has waited long enough. When a send fails, its messages stay gathered, and the error is raised by
    the next `send`, `flush` or the end of the block: nothing is dropped in silence.
    """

    def __init__(self, queue: AsyncQueue, batch_size: int, linger_seconds: float) -> None:
        self.queue = queue
        self.batch_size = check_integer("batch_size", batch_size, 1, 1_000_000)
        self.linger_seconds = check_seconds("linger_seconds", linger_seconds)
        self._waiting: list[Draft] = []
        self._gathered = 0
        self._sent = 0
        self._error: BaseException | None = None
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        self._putting: asyncio.Task[None] | None = None

    async def send(self, payload: Any, **options: Any) -> None:
        """Gather one message; the options are those of `queue.send`. Sends at once when the batch is full."""
        outgoing = payload if isinstance(payload, Outgoing) else Outgoing(payload=payload, **options)
        message = draft(outgoing)
        self._raise_error()
        if self._closed:
            raise RuntimeError("this producer is closed")
        self._waiting.append(message)
        self._gathered += 1
        if len(self._waiting) >= self.batch_size:
            await self._put(self._gathered)
        else:
            self._start_lingering()

    async def flush(self) -> None:
        """Send what was gathered, now."""
        self._error = None
        await self._put(self._gathered)

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

    async def _put(self, until: int) -> None:
        """Until that many were sent since the beginning. Being cancelled does not stop a send that has begun, because
        then nobody would know whether its messages are in."""
        while self._sent < until:
            putting = self._putting = self._putting or asyncio.create_task(self._put_all())
            try:
                await asyncio.shield(putting)
            except asyncio.CancelledError:
                putting.add_done_callback(self._note_error)
                raise
            except Exception:
                self._error = None  # whoever gets it here need not hear of it again
                raise

    async def _put_all(self) -> None:
        messages = self._waiting[:]
        try:
            await self.queue._send(messages, None)
            del self._waiting[: len(messages)]
            self._sent += len(messages)
        finally:
            self._putting = None
            self._start_lingering()

    def _raise_error(self) -> None:
        if self._error is not None:
            error, self._error = self._error, None
            self._start_lingering()
            raise error

    def _start_lingering(self) -> None:
        if self._waiting and self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self.linger_seconds, self._linger)

    def _linger(self) -> None:
        """The time is up. After an error the messages stay until somebody was told of it."""
        self._timer = None
        if self._waiting and self._error is None and self._putting is None:
            self._putting = asyncio.create_task(self._put_all())
            self._putting.add_done_callback(self._note_error)

    def _note_error(self, done: asyncio.Task[None]) -> None:
        if not done.cancelled() and done.exception() is not None:
            self._error = done.exception()

    def _stop(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
