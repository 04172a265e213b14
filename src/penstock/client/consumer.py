"""A registered consumer, which heartbeats keep alive."""

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
        """Its index in birth order among the living consumers, as of the last heartbeat."""
        return self.info.index

    def receive(
        self, limit: int | None = None, lease_seconds: float | None = None, wait_seconds: float = 0
    ) -> list[Delivery]:
        """Receive up to `limit` messages, by default `batch_size`. Raises ConsumerRemoved when this consumer missed its
        heartbeats and was removed; it must register again."""
        most = self.batch_size if limit is None else limit
        return self.queue.receive(most, self.info.group, self.info.name, lease_seconds, wait_seconds)

    def heartbeat(self) -> ConsumerInfo:
        """Send a heartbeat; every `heartbeats_per_sweep` times, also remove the dead consumers of the group. Raises
        ConsumerRemoved when this consumer was removed; it must register again."""
        info = self.info
        self.info = self.queue.executor.write(lambda: self.queue.engine.heartbeat(info.queue, info.group, info.name))
        return self.info

    def register(self) -> ConsumerInfo:
        """Register again after a removal, at the end of the birth order; a living consumer keeps its index."""
        info = self.info
        heartbeat = (info.heartbeat_seconds, info.max_missed_heartbeats, info.heartbeats_per_sweep)
        self.info = self.queue.executor.write(
            lambda: self.queue.engine.register(info.queue, info.group, info.name, *heartbeat)
        )
        return self.info

    def deregister(self) -> int:
        """Deregister and release the leases of this consumer at once; returns the number of released messages."""
        info = self.info
        return self.queue.executor.write(lambda: self.queue.engine.deregister(info.queue, info.group, info.name))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} of {self.queue.name!r}>"
