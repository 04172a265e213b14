"""A registered consumer: a place in birth order that heartbeats keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.domain.observations import ConsumerInfo

if TYPE_CHECKING:
    from penstock.client.queue import Queue


class Consumer:
    """Made by `queue.register(name)`."""

    def __init__(self, queue: Queue, info: ConsumerInfo) -> None:
        self.queue = queue
        self.info = info

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def index(self) -> int:
        """The place among the living, as of the last heartbeat."""
        return self.info.index

    def heartbeat(self) -> ConsumerInfo:
        """Stay alive. Raises ConsumerRemoved when it is too late: register again."""
        info = self.info
        self.info = self.queue._run(lambda: self.queue.engine.heartbeat(info.queue, info.group, info.name))
        return self.info

    def deregister(self) -> int:
        """Leave, and end the leases held under this name at once; counts the messages let go."""
        info = self.info
        return self.queue._run(lambda: self.queue.engine.deregister(info.queue, info.group, info.name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.queue.name!r}>"
