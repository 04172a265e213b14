# Generated from src/penstock/client/batch.py by scripts/twin.py: change that file and run the script.
"""A batch: messages held until it is started, with an end message when all of them are finished."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from penstock.domain.message import Draft, Outgoing, draft, drafts
from penstock.domain.names import check_name
from penstock.domain.observations import BatchInfo

if TYPE_CHECKING:
    from penstock.client.aio.queue import AsyncQueue


class AsyncBatch:
    """Made by `queue.batch(name)`: the newest batch of that name, or a new one when that has ended. From its first
    change on the object means this one batch: when it has ended, sends raise `BatchClosed`, and another
    `queue.batch(name)` begins a new one."""

    def __init__(self, queue: AsyncQueue, name: str) -> None:
        self.queue = queue
        self.name = check_name("batch", name)
        # The batch is the first one of its name after this number; unknown until something is changed.
        self._after: int | None = None

    async def send(self, payload: Any, **options: Any) -> str:
        """Put one message into the batch; the options are those of `queue.send`."""
        after = await self._bound()
        ids = await self.queue._send([draft(_outgoing(payload, options), self.name, after)], None)
        return ids[0]

    async def send_many(self, items: Iterable[Any]) -> list[str]:
        after = await self._bound()
        return await self.queue._send(drafts(items, self.name, after), None)

    async def set_end(self, payload: Any, **options: Any) -> None:
        """The message that is sent exactly once when all members are finished."""
        await self._open(end=draft(_outgoing(payload, options)))

    async def set_abort(self, payload: Any, **options: Any) -> None:
        """The message that is sent exactly once when the batch was cancelled and nothing is in flight any more."""
        await self._open(abort=draft(_outgoing(payload, options)))

    async def start(self) -> BatchInfo:
        """Make the members ready. An empty batch ends at once."""
        after = await self._bound(opens=False)
        return await self.queue._run(lambda: self.queue.engine.batch_start(self.queue.name, self.name, after))

    async def cancel(self) -> BatchInfo:
        """Cancel what is not in flight; the abort message follows when the rest has ended."""
        after = await self._bound(opens=False)
        return await self.queue._run(lambda: self.queue.engine.batch_cancel(self.queue.name, self.name, after))

    async def info(self) -> BatchInfo:
        return await self.queue._read(lambda: self.queue.engine.batch(self.queue.name, self.name, self._after))

    @property
    async def state(self) -> str:
        """open, running, cancelling, finished or cancelled."""
        info = await self.info()
        return info.state

    @property
    async def remaining(self) -> int:
        info = await self.info()
        return info.remaining

    @property
    async def finished(self) -> int:
        info = await self.info()
        return info.finished

    async def _open(self, end: Draft | None = None, abort: Draft | None = None) -> None:
        after = await self._bound()
        await self.queue._run(lambda: self.queue.engine.batch_open(self.queue.name, self.name, end, abort, after))

    async def _bound(self, opens: bool = True) -> int:
        """Which batch this is, decided once: the newest, but whoever fills a batch does not mean one that has ended."""
        if self._after is not None:
            return self._after
        after = await self.queue._read(lambda: self.queue.engine.batch_mark(self.queue.name, self.name, opens))
        return self._decide(after)

    def _decide(self, after: int) -> int:
        """Somebody else may have decided meanwhile."""
        if self._after is None:
            self._after = after
        return self._after

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.queue.name!r}>"


def _outgoing(payload: Any, options: dict[str, Any]) -> Outgoing:
    return payload if isinstance(payload, Outgoing) else Outgoing(payload=payload, **options)
