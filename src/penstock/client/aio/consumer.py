# Generated from src/penstock/client/consumer.py by scripts/twin.py: change that file and run the script.
"""A registered consumer: a place in birth order that heartbeats keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.observations import ConsumerInfo

if TYPE_CHECKING:
    from penstock.client.aio.queue import AsyncQueue


class AsyncConsumer:
    """Made by `await queue.register(name)`."""

    def __init__(self, queue: AsyncQueue, info: ConsumerInfo) -> None:
        self.queue = queue
        self.info = info

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def index(self) -> int:
        """The place among the living, as of the last heartbeat."""
        return self.info.index

    async def heartbeat(self) -> ConsumerInfo:
        """Stay alive. Raises ConsumerRemoved when it is too late: register again."""
        info = self.info
        self.info = await self.queue._run(lambda: self.queue.engine.heartbeat(info.queue, info.group, info.name))
        return self.info

    async def deregister(self) -> int:
        """Leave, and end the leases held under this name at once; counts the messages let go."""
        info = self.info
        return await self.queue._run(lambda: self.queue.engine.deregister(info.queue, info.group, info.name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.queue.name!r}>"
