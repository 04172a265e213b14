"""A group waits for those who were just answered, and for nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from penstock.client.aio import gathering
from penstock.client.aio.call import Call
from penstock.client.aio.gathering import Gatherer, run_each

pytestmark = pytest.mark.anyio
# Longer than in use, so that a busy machine is no reason to miss one.
MOMENT = 0.04
SOON = 10


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Groups:
    """Runs calls, and notes how many came together each time."""

    def __init__(self, waits: bool) -> None:
        self.sizes: list[int] = []
        self.gatherer = Gatherer(asyncio.get_running_loop(), "test", self._run, waits=waits)

    def _run(self, calls: Sequence[Call]) -> None:
        self.sizes.append(sum(call.callers for call in calls))
        run_each(calls)

    def call(self, callers: int = 1) -> asyncio.Future[int]:
        return self.gatherer.submit(Call(lambda: 1, callers=callers))

    async def call_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.call()


@pytest.fixture
async def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Groups]:
    monkeypatch.setattr(gathering, "MOMENT_SECONDS", MOMENT)
    monkeypatch.setattr(gathering, "LONGEST_SECONDS", SOON)
    groups = Groups(waits=getattr(request, "param", True))
    yield groups
    await groups.gatherer.drain()
    groups.gatherer.end()
    groups.gatherer.join()


async def test_those_just_answered_are_waited_for(groups: Groups) -> None:
    await asyncio.gather(*(groups.call() for _ in range(3)))
    await asyncio.gather(groups.call(), groups.call(), groups.call_after(MOMENT / 2))
    assert groups.sizes == [3, 3]


async def test_as_long_as_they_keep_coming(groups: Groups) -> None:
    await asyncio.gather(*(groups.call() for _ in range(4)))
    late = [groups.call_after(seconds) for seconds in (0, MOMENT / 2, 1.5 * MOMENT)]
    await asyncio.wait_for(asyncio.gather(*late), SOON)
    assert groups.sizes == [4, 3], "the fourth did not come, and was not waited for any longer"


async def test_a_call_for_many_counts_as_many(groups: Groups) -> None:
    await groups.call(callers=50)
    await asyncio.gather(groups.call(callers=20), groups.call_after(MOMENT / 2))
    assert groups.sizes == [50, 21]


async def test_nobody_waits_for_a_lone_caller(groups: Groups) -> None:
    for _ in range(3):
        await groups.call()
        assert groups.gatherer._moment is None
    assert groups.sizes == [1, 1, 1]


@pytest.mark.parametrize("groups", [False], indirect=True)
async def test_what_shares_nothing_does_not_wait(groups: Groups) -> None:
    await asyncio.gather(*(groups.call() for _ in range(3)))
    await asyncio.sleep(0)
    assert groups.gatherer._moment is None
    await groups.call()
    assert groups.sizes == [3, 1]
