"""How many clients are blocked in QNOTIFY, over all servers of a store.

Each server publishes its own count in the store's ledger as one entry with an expiry, so that the count of a killed
server disappears. Changes are published with a delay, all at once: a client that blocks repeatedly does not cost a
commit each time.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.errors import PenstockError
from penstock.engines.contract import Engine

if TYPE_CHECKING:
    from penstock.client.aio.store import AsyncStore

logger = logging.getLogger("penstock.resp")
KIND = "resp_waiting"
# Delay between a change and its publication.
DELAY_SECONDS = 0.5
# Lifetime of an entry, and the interval of its renewal.
LASTING_SECONDS = 60
RENEWAL_SECONDS = 20
# Queues and groups in an entry, which must not grow without bound.
MAX_PLACES = 1_000
# A queue and a group.
Place = tuple[str, str]


class Entry(msgspec.Struct, frozen=True):
    ends_at: int
    waiting: list[tuple[str, str, int]]


_decode = msgspec.json.Decoder(Entry).decode


class Presence:
    """`counts` returns how many are blocked on this server."""

    def __init__(self, store: AsyncStore, counts: Callable[[], dict[Place, int]]) -> None:
        self._store = store
        self._counts = counts
        self._name = uuid.uuid4().hex
        self._published: dict[Place, int] = {}
        self._published_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._publishing: asyncio.Task[None] | None = None

    def note_change(self) -> None:
        self._publish_in(DELAY_SECONDS)

    def elsewhere(self, engine: Engine) -> Counter[Place]:
        """Inside an operation: how many are blocked on other servers."""
        now = engine.now()
        waiting: Counter[Place] = Counter()
        for name, value in engine.ledger(KIND).items():
            entry = _decode(value)
            if name != self._name and entry.ends_at > now:
                waiting.update({(queue, group): count for queue, group, count in entry.waiting})
        return waiting

    async def close(self) -> None:
        """Publish that no client is blocked here."""
        if self._timer is not None:
            self._timer.cancel()
        if self._publishing is not None:
            await self._publishing
        await self._publish({})

    def _publish_in(self, seconds: float) -> None:
        if self._timer is not None and self._timer.when() <= asyncio.get_running_loop().time() + seconds:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._begin)

    def _begin(self) -> None:
        self._timer = None
        if self._publishing is not None and not self._publishing.done():
            self._publish_in(DELAY_SECONDS)
        else:
            self._publishing = asyncio.get_running_loop().create_task(self._publish(self._counts(), renews=True))

    async def _publish(self, counts: dict[Place, int], *, renews: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        is_due = bool(counts) and now - self._published_at >= RENEWAL_SECONDS
        if counts != self._published or is_due:
            try:
                await self._store.executor.write(lambda: self._record(self._store.engine, counts))
                self._published, self._published_at = counts, now
            except PenstockError as error:
                logger.warning("the number of waiting clients could not be published: %s", error)
        if counts and renews:
            self._publish_in(RENEWAL_SECONDS)

    def _record(self, engine: Engine, counts: dict[Place, int]) -> None:
        """Inside an operation; also drops entries of servers that have ended."""
        now = engine.now()
        ended = [name for name, value in engine.ledger(KIND).items() if _decode(value).ends_at <= now]
        if not counts:
            engine.record(KIND, {}, [*ended, self._name])
            return
        waiting = [(queue, group, count) for (queue, group), count in list(counts.items())[:MAX_PLACES]]
        entry = Entry(now + LASTING_SECONDS * 1_000_000, waiting)
        engine.record(
            KIND, {self._name: msgspec.json.encode(entry).decode()}, [name for name in ended if name != self._name]
        )
