"""A group waits only for the callers of the previous group."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from penstock.client.aio import coalescer
from penstock.client.aio.call import Call, Operation
from penstock.client.aio.coalescer import Coalescer, run_each

pytestmark = pytest.mark.anyio
# Longer than the default, for busy machines.
MOMENT = 0.4
SOON = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


class Groups:
    """Runs calls, and records the size of each group."""

    def __init__(self, waits: bool) -> None:
        self.sizes: list[int] = []
        self.operation = Operation(list)
        self.coalescer = Coalescer(asyncio.get_running_loop(), "test", self._run, waits=waits)

    def _run(self, calls: Sequence[Call]) -> None:
        self.sizes.append(sum(len(call.callers) for call in calls))
        run_each(calls)

    def call(self) -> asyncio.Future[list[int]]:
        return self.coalescer.call(Operation(list))

    def join(self) -> asyncio.Future[list[int]]:
        """A call that is merged with others of its kind."""
        return self.coalescer.call(self.operation, [1])

    async def call_after(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.call()


@pytest.fixture
async def groups(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Groups]:
    monkeypatch.setattr(coalescer, "MOMENT_SECONDS", MOMENT)
    monkeypatch.setattr(coalescer, "LONGEST_SECONDS", SOON)
    groups = Groups(waits=getattr(request, "param", True))
    yield groups
    await groups.coalescer.drain()
    groups.coalescer.end()
    groups.coalescer.join()


async def test_a_group_waits_for_the_callers_of_the_last_one(groups: Groups) -> None:
    await asyncio.gather(*(groups.call() for _ in range(3)))
    await asyncio.gather(groups.call(), groups.call(), groups.call_after(MOMENT / 2))
    assert groups.sizes == [3, 3]


async def test_a_group_waits_only_while_callers_keep_coming(groups: Groups) -> None:
    await asyncio.gather(*(groups.call() for _ in range(4)))
    late = [groups.call_after(seconds) for seconds in (0, MOMENT / 2, 1.5 * MOMENT)]
    await asyncio.wait_for(asyncio.gather(*late), SOON)
    assert groups.sizes == [4, 3], "the fourth did not come, and was not waited for any longer"


async def test_each_caller_of_a_coalesced_call_is_counted(groups: Groups) -> None:
    await asyncio.gather(*(groups.join() for _ in range(50)))
    await asyncio.gather(*(groups.join() for _ in range(20)), groups.call_after(MOMENT / 2))
    assert groups.sizes == [50, 21]


async def test_a_lone_caller_never_waits(groups: Groups) -> None:
    for _ in range(3):
        await groups.call()
        assert groups.coalescer._moment is None
    assert groups.sizes == [1, 1, 1]


@pytest.mark.parametrize("groups", [False], indirect=True)
async def test_reads_do_not_wait_for_each_other(groups: Groups) -> None:
    await asyncio.gather(*(groups.call() for _ in range(3)))
    await asyncio.sleep(0)
    assert groups.coalescer._moment is None
    await groups.call()
    assert groups.sizes == [3, 1]
