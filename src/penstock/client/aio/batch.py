# Generated from src/penstock/client/batch.py by scripts/twin.py: change that file and run the script.
"""A batch: messages of one or several queues, held until it is started, with an end message when all are finished."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Unpack

from penstock.client.executor import BACKSTOP_SECONDS
from penstock.domain.errors import WaitTimeout
from penstock.domain.message import Draft, Outgoing, SendOptions, draft, drafts
from penstock.domain.results import BatchInfo, MessagePage
from penstock.domain.validation import check_integer, check_name, check_seconds

if TYPE_CHECKING:
    from penstock.client.aio.queue import AsyncQueue

MAX_MEMBERS = 10_000
ENDED = ("finished", "cancelled")


class AsyncBatch:
    """Made by `queue.batch(name)`: the newest batch of that name, or a new one when that has ended. The first change
    binds the object to one batch: after its end, sends raise `BatchClosed`, and another `queue.batch(name)` begins a
    new one."""

    def __init__(self, queue: AsyncQueue, name: str) -> None:
        self.queue = queue
        self.name = check_name("batch", name)
        # The batch is the first of its name after this number; None until the first change.
        self._after: int | None = None

    async def send(self, payload: Any, *, queue: str | None = None, **options: Unpack[SendOptions]) -> str:
        """Send one message as a member of the batch, to the batch's queue or to another one. The other options are
        those of `queue.send`."""
        after = await self._bound()
        message = draft(_outgoing(payload, options), self.name, after, self._owner(queue))
        ids = await self.queue.executor.send(queue or self.queue.name, [message])
        return ids[0]

    async def send_many(self, items: Iterable[Any], *, queue: str | None = None) -> list[str]:
        """Send members of the batch, all to one queue."""
        after = await self._bound()
        return await self.queue.executor.send(
            queue or self.queue.name, drafts(items, self.name, after, self._owner(queue)), None
        )

    async def set_end(self, payload: Any, **options: Unpack[SendOptions]) -> None:
        """Set the message that is sent exactly once when all members are finished."""
        await self._open(end=draft(_outgoing(payload, options)))

    async def set_abort(self, payload: Any, **options: Unpack[SendOptions]) -> None:
        """Set the message that is sent exactly once when the batch was cancelled and no member is in flight."""
        await self._open(abort=draft(_outgoing(payload, options)))

    async def start(self) -> BatchInfo:
        """Make the members ready. An empty batch ends at once."""
        after = await self._bound(opens=False)
        return await self.queue.executor.write(lambda: self.queue.engine.batch_start(self.queue.name, self.name, after))

    async def cancel(self) -> BatchInfo:
        """Cancel the members that are not in flight; the abort message is sent when the others have ended."""
        after = await self._bound(opens=False)
        return await self.queue.executor.write(
            lambda: self.queue.engine.batch_cancel(self.queue.name, self.name, after)
        )

    async def info(self) -> BatchInfo:
        return await self.queue.executor.read(lambda: self.queue.engine.batch(self.queue.name, self.name, self._after))

    async def members(self, limit: int = 100, after: str | None = None) -> MessagePage:
        """The messages of the batch, ended ones included, each with its state in the primary group. `after` is `next`
        of the page before."""
        check_integer("limit", limit, 1, MAX_MEMBERS)
        return await self.queue.executor.read(
            lambda: self.queue.engine.members(self.queue.name, self.name, self._after, limit, after)
        )

    async def wait(self, timeout_seconds: float | None = None) -> BatchInfo:
        """Block until the batch is finished or cancelled and return its counts; WaitTimeout after the timeout."""
        if timeout_seconds is not None:
            check_seconds("timeout_seconds", timeout_seconds)
        ends = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        await self._bound(opens=False)
        # Inside a handler, give up the slot: the members may need it.
        self.queue.executor.leave_slot()
        try:
            while (info := await self.info()).state not in ENDED:
                left = BACKSTOP_SECONDS if ends is None else ends - time.monotonic()
                if left <= 0:
                    raise WaitTimeout(
                        f"batch {self.name!r} of queue {self.queue.name!r} did not end in {timeout_seconds} s: "
                        f"it is {info.state}, and {info.remaining} of {info.total} messages remain"
                    )
                await self._wait_for_end(left)
        finally:
            await self.queue.executor.enter_slot()
        return info

    async def _wait_for_end(self, timeout_seconds: float) -> None:
        def ready_in() -> float | None:
            info = self.queue.engine.batch(self.queue.name, self.name, self._after)
            return 0 if info.state in ENDED else None

        await self.queue.executor.wait((self.queue.name, "batch", self.name, self._after), ready_in, timeout_seconds)

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

    def _owner(self, queue: str | None) -> str | None:
        """The batch's queue, if the message goes to another one."""
        return None if queue is None or check_name("queue", queue) == self.queue.name else self.queue.name

    async def _open(self, end: Draft | None = None, abort: Draft | None = None) -> None:
        after = await self._bound()
        await self.queue.executor.write(
            lambda: self.queue.engine.batch_open(self.queue.name, self.name, end, abort, after)
        )

    async def _bound(self, opens: bool = True) -> int:
        """Bind to a batch, once: the newest of the name, or with `opens` a new one if that has ended."""
        if self._after is not None:
            return self._after
        after = await self.queue.executor.read(lambda: self.queue.engine.batch_mark(self.queue.name, self.name, opens))
        return self._decide(after)

    def _decide(self, after: int) -> int:
        """Keep the first result: another thread may have bound the batch meanwhile."""
        if self._after is None:
            self._after = after
        return self._after

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.queue.name!r}>"


def _outgoing(payload: Any, options: SendOptions) -> Outgoing:
    return payload if isinstance(payload, Outgoing) else Outgoing(payload=payload, **options)
