"""However many people watch, the store is looked at once; and lists are bounded, whatever they hold."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from penstock.servers.access import Users, make_users
from penstock.servers.http.dashboard import history as history_file
from penstock.servers.http.dashboard.history import History
from penstock.servers.http.dashboard.message_list import listed
from penstock.servers.http.sampler import Sample
from penstock.servers.http.state import HttpState
from penstock.settings import HttpSettings

pytestmark = pytest.mark.anyio


class CountingSampler:
    """The sampler, and how often it looked at the store."""

    def __init__(self, state: HttpState) -> None:
        self._sampler = state.sampler
        self.looks = 0
        self._last: Sample | None = None

    async def sample(self, max_age_seconds: float = 2.0) -> Sample:
        sample = await self._sampler.sample(max_age_seconds)
        self.looks += sample is not self._last
        self._last = sample
        return sample


async def test_many_viewers_share_one_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_file, "WATCHED_SECONDS", 0.2)
    state = HttpState(f"sqlite:///{tmp_path}/store.db", Users(make_users(None, {})), HttpSettings())
    await state.open()
    counting = CountingSampler(state)
    state.sampler = counting  # type: ignore[assignment]  # it answers the same
    history = state.history = History(state)
    seen: list[list[Sample]] = [[] for _ in range(20)]

    async def view(mine: list[Sample]) -> None:
        async for sample in history.watch("ann", 5):
            if sample is not None:
                mine.append(sample)
            if len(mine) == 4:
                return

    async with asyncio.timeout(60):
        await asyncio.gather(*(view(mine) for mine in seen))
    assert all(mine == seen[0] for mine in seen), "all see the same samples"
    assert counting.looks <= 6
    assert history.viewers == 0
    await state.close()


async def test_regions_are_rendered_once_for_all_viewers(tmp_path: Path) -> None:
    state = HttpState(f"sqlite:///{tmp_path}/store.db", Users(make_users(None, {})), HttpSettings())
    await state.open()
    history = state.history = History(state)
    await history.latest()
    made = []
    for _ in range(5):
        history.once("overview", lambda: made.append(1))
    assert len(made) == 1
    await state.close()


async def test_closing_ends_every_stream(tmp_path: Path) -> None:
    state = HttpState(f"sqlite:///{tmp_path}/store.db", Users(make_users(None, {})), HttpSettings())
    await state.open()
    history = state.history = History(state)
    begun = asyncio.Event()

    async def view() -> None:
        async for _ in history.watch("ann", 60):
            begun.set()

    watching = asyncio.create_task(view())
    async with asyncio.timeout(60):
        await begun.wait()
        await state.close()
        await watching


class Heavy(msgspec.Struct):
    position: int
    payload: bytes


@pytest.mark.parametrize(("size", "most"), [(10, 300), (16 << 20, 8)])
async def test_a_list_stops_when_it_has_read_enough(size: int, most: int) -> None:
    payload = bytes(size)
    reads: list[int] = []

    async def fetch(limit: int, before: int | None) -> list[Heavy]:
        reads.append(limit)
        top = 1000 if before is None else before
        return [Heavy(top - number - 1, payload) for number in range(min(limit, top))]

    found = await listed(fetch, lambda one: one.position, 300)
    assert len(found.items) <= most
    assert found.more == found.items[-1].position
    assert len(reads) < 10
