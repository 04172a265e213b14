"""Recent samples for charts, taken by one task however many viewers there are.

It samples every second while there are viewers and every ten seconds otherwise. If samples take long there are
fewer of them, so that they never use more than a small part of one core.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Hashable
from typing import TypeVar

from starlette.requests import Request

from penstock.domain.errors import PenstockError
from penstock.domain.results import GroupStats, unread_primary_group
from penstock.servers.http.dashboard.series import Series, point
from penstock.servers.http.sampler import QueueSample, Sample
from penstock.servers.http.state import HttpState, http_state

T = TypeVar("T")
logger = logging.getLogger("penstock.http")
WATCHED_SECONDS = 1.0
UNWATCHED_SECONDS = 10.0
# After a sample the task sleeps at least this many times its duration.
REST = 30
# Groups beyond this have no charts: clients choose the number of groups, and memory is bounded.
MAX_SERIES = 2_000
# Per user, so that one user with many tabs cannot lock out the others.
MAX_VIEWERS, MAX_VIEWERS_OF_A_USER = 1_024, 256


class History:
    def __init__(self, state: HttpState) -> None:
        self._site = state
        self.sample: Sample | None = None
        self.number = 0
        self.changes = 0
        self.watching: Counter[str] = Counter()
        self._series: dict[tuple[str, str], Series] = {}
        self._rendered: dict[Hashable, object] = {}
        self._counters: object = None
        self._looked = asyncio.Condition()
        self._woken = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._closed = False

    # -- looking ---------------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self._looking is None and not self._closed:
            self._looking = asyncio.create_task(self._look_on())

    async def latest(self) -> Sample:
        """A sample that is recent enough for a page, added to the history."""
        self.start()
        sample = await self._site.sampler.sample()
        self._remember(sample)
        return sample

    async def refresh(self) -> None:
        """Take a sample after a change that the next page must show."""
        self._remember(await self._site.sampler.sample(max_age_seconds=0))

    async def _look_on(self) -> None:
        while not self._closed:
            took = 0.0
            try:
                sample = await self._site.sampler.sample(max_age_seconds=WATCHED_SECONDS / 2)
                took = sample.took_seconds
                self._remember(sample)
            except PenstockError as error:
                logger.warning("dashboard: no sample: %s", type(error).__name__)
            async with self._looked:
                self._looked.notify_all()
            await self._rest(max(WATCHED_SECONDS if self.viewers else UNWATCHED_SECONDS, took * REST))

    async def _rest(self, seconds: float) -> None:
        self._woken.clear()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._woken.wait()

    def _remember(self, sample: Sample) -> None:
        if self.sample is sample:
            return
        self.sample = sample
        self.number += 1
        self._rendered.clear()
        counters = _counters(sample)
        if counters != self._counters:
            self._counters = counters
            self.changes += 1
        self._add_points(sample)

    def _add_points(self, sample: Sample) -> None:
        at = sample.at.timestamp()
        kept: dict[tuple[str, str], Series] = {}
        for name, queue in sample.queues.items():
            for group, stats in queue.groups.items():
                if len(kept) == MAX_SERIES:
                    break
                series = kept[name, group] = self._series.get((name, group)) or Series()
                series.add(point(at, stats))
        self._series = kept

    # -- asking ----------------------------------------------------------------------------------------------------

    def series(self, queue: str, group: str) -> Series:
        return self._series.get((queue, group)) or Series()

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """Compute a value once per sample, for all viewers."""
        if key not in self._rendered:
            self._rendered[key] = make()
        return self._rendered[key]  # type: ignore[return-value]  # the key names what is made

    # -- watching --------------------------------------------------------------------------------------------------

    @property
    def viewers(self) -> int:
        return self.watching.total()

    def is_full(self, user: str) -> bool:
        return self.viewers >= MAX_VIEWERS or self.watching[user] >= MAX_VIEWERS_OF_A_USER

    async def watch(self, user: str, timeout_seconds: float) -> AsyncIterator[Sample | None]:
        """Yield every new sample; None after a time without one."""
        self.start()
        self.watching[user] += 1
        self._woken.set()
        seen = 0
        try:
            while not self._closed:
                if self.sample is not None and self.number != seen:
                    seen = self.number
                    yield self.sample
                    continue
                yield None if await self._timed_out(seen, timeout_seconds) else self.sample
                seen = self.number
        finally:
            self.watching -= Counter({user: 1})

    async def _timed_out(self, seen: int, timeout_seconds: float) -> bool:
        try:
            async with asyncio.timeout(timeout_seconds), self._looked:
                await self._looked.wait_for(lambda: self.number != seen or self._closed)
        except TimeoutError:
            return True
        return self._closed

    async def close(self) -> None:
        """End all event streams and the sampling."""
        self._closed = True
        self._woken.set()
        async with self._looked:
            self._looked.notify_all()
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking


def history_of(request: Request) -> History:
    history: History = http_state(request).history
    return history


def lead(queue: QueueSample) -> tuple[str, GroupStats] | None:
    """The group that represents the queue: the primary one unless it never received, else the one with the most lag."""
    primary = queue.info.policy.default_group
    unread = unread_primary_group(queue.info.policy, queue.groups)
    if primary in queue.groups and primary != unread:
        return primary, queue.groups[primary]
    read = (one for one in queue.groups.items() if one[0] != unread)
    return max(read, key=lambda one: one[1].lag, default=None)


def _counters(sample: Sample) -> object:
    """The counters of a sample for comparison, without ages."""
    return {
        (name, group): (stats.total, stats.in_progress, stats.redo, stats.held, stats.lag, stats.outcomes)
        for name, queue in sample.queues.items()
        for group, stats in queue.groups.items()
    } | {name: (queue.info.policy, queue.info.groups) for name, queue in sample.queues.items()}
