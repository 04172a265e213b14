"""A registered consumer: a place in birth order that heartbeats keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.client.delivery import Delivery
from penstock.domain.results import ConsumerInfo

if TYPE_CHECKING:
    from penstock.client.queue import Queue


class Consumer:
    """Made by `queue.register(name)` or `store.consumer(queue)`."""

    def __init__(self, queue: Queue, info: ConsumerInfo, batch_size: int) -> None:
        self.queue = queue
        self.info = info
        self.batch_size = batch_size

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def index(self) -> int:
        """The place among the living, as of the last heartbeat."""
        return self.info.index

    def receive(
        self, limit: int | None = None, lease_seconds: float | None = None, wait_seconds: float = 0
    ) -> list[Delivery]:
        """Take up to `limit` messages (`batch_size` when none is given). Raises ConsumerRemoved when this consumer
        missed its heartbeats and was removed: it receives nothing before it registers again."""
        most = self.batch_size if limit is None else limit
        return self.queue.receive(most, self.info.group, self.info.name, lease_seconds, wait_seconds)

    def heartbeat(self) -> ConsumerInfo:
        """Stay alive; every `heartbeats_per_sweep` times, remove others of the group that have missed too many. Raises
        ConsumerRemoved when it is too late: register again."""
        info = self.info
        self.info = self.queue.executor.write(lambda: self.queue.engine.heartbeat(info.queue, info.group, info.name))
        return self.info

    def register(self) -> ConsumerInfo:
        """Take a place again after a removal, at the end of the birth order; one that is there keeps its place."""
        info = self.info
        heartbeat = (info.heartbeat_seconds, info.max_missed_heartbeats, info.heartbeats_per_sweep)
        self.info = self.queue.executor.write(
            lambda: self.queue.engine.register(info.queue, info.group, info.name, *heartbeat)
        )
        return self.info

    def deregister(self) -> int:
        """Leave, and end the leases held under this name at once; counts the messages let go."""
        info = self.info
        return self.queue.executor.write(lambda: self.queue.engine.deregister(info.queue, info.group, info.name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.queue.name!r}>"
