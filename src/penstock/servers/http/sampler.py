"""Samples of the counters of all queues, shared by pages, live charts and metrics.

Only counters are read, which the engine keeps up to date; nothing here grows with the number of messages.
"""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import msgspec

from penstock.client.aio.store import AsyncStore
from penstock.domain.results import GroupStats, QueueInfo
from penstock.engines.contract import Engine

FRESH_SECONDS = 2.0


class QueueSample(msgspec.Struct, frozen=True):
    info: QueueInfo
    groups: dict[str, GroupStats]


class Sample(msgspec.Struct, frozen=True):
    """`took_seconds` is the duration of the query."""

    at: datetime
    queues: dict[str, QueueSample]
    took_seconds: float


class Sampler:
    def __init__(self, store: AsyncStore) -> None:
        self._store = store
        self._latest: tuple[float, Sample] | None = None
        self._reading: asyncio.Task[Sample] | None = None

    async def sample(self, max_age_seconds: float = FRESH_SECONDS) -> Sample:
        """The latest sample if it is recent enough, else a new one, which concurrent callers share."""
        if self._latest is not None and time.monotonic() - self._latest[0] <= max_age_seconds:
            return self._latest[1]
        if self._reading is None:
            self._reading = asyncio.create_task(self._read())
            self._reading.add_done_callback(self._forget)
        # Shielded: a cancelled request must not cancel the sample of the others.
        return await asyncio.shield(self._reading)

    async def _read(self) -> Sample:
        began = time.monotonic()
        queues = await self._store.executor.read(lambda: _look(self._store.engine))
        sample = Sample(datetime.now(UTC), queues, time.monotonic() - began)
        self._latest = time.monotonic(), sample
        return sample

    def _forget(self, reading: asyncio.Task[Sample]) -> None:
        self._reading = None
        if not reading.cancelled():
            reading.exception()


def _look(engine: Engine) -> dict[str, QueueSample]:
    return {info.name: QueueSample(info, engine.stats(info.name)) for info in engine.queues()}
