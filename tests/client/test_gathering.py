"""Calls of many tasks are handed to one thread in groups, and each task gets its own outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from penstock.client.aio.call import Call, attempt
from penstock.client.aio.gathering import Gatherer

pytestmark = pytest.mark.anyio


class Groups:
    """Runs calls one by one, notes the groups they came in, and can be held inside a group."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.threads: set[int] = set()
        self.began = threading.Event()
        self.may_go = threading.Event()
        self.may_go.set()

    def run(self, calls: Sequence[Call]) -> None:
        self.sizes.append(len(calls))
        self.threads.add(threading.get_ident())
        self.began.set()
        assert self.may_go.wait(30)
        for call in calls:
            call.outcome = attempt(call.run)


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
async def gatherer(groups: Groups) -> AsyncIterator[Gatherer]:
    gatherer = Gatherer(asyncio.get_running_loop(), "test-gatherer", groups.run, cap=100)
    yield gatherer
    groups.may_go.set()
    await gatherer.drain()
    gatherer.end()
    gatherer.join()


async def test_calls_made_together_run_in_one_group_on_one_thread(gatherer: Gatherer, groups: Groups) -> None:
    answers = await asyncio.gather(*[gatherer.submit(Call(partial(str, number))) for number in range(50)])
    assert answers == [str(number) for number in range(50)]
    assert groups.sizes == [50]
    assert threading.get_ident() not in groups.threads


async def test_calls_gather_while_a_group_runs(gatherer: Gatherer, groups: Groups) -> None:
    first = await _held(gatherer, groups)
    others = [gatherer.submit(Call(partial(str, number))) for number in range(7)]
    await asyncio.sleep(0)
    groups.may_go.set()
    assert await first == "first"
    assert await asyncio.gather(*others) == [str(number) for number in range(7)]
    assert groups.sizes == [1, 7]


async def test_an_error_stays_with_its_call(gatherer: Gatherer) -> None:
    calls = [gatherer.submit(Call(partial(int, text))) for text in ("1", "x", "3")]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[0::2] == [1, 3]
    assert isinstance(answers[1], ValueError)


async def test_a_group_that_cannot_be_run_fails_each_of_its_calls(gatherer: Gatherer, groups: Groups) -> None:
    def fail(calls: Sequence[Call]) -> None:
        raise ValueError("a mistake")

    gatherer._run = fail
    calls = [gatherer.submit(Call(partial(str, number))) for number in range(3)]
    answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 30)
    assert [type(answer) for answer in answers] == [ValueError] * 3
    gatherer._run = groups.run
    assert await gatherer.submit(Call(partial(str, "again"))) == "again"


async def test_a_group_has_at_most_as_many_messages_as_the_cap(gatherer: Gatherer, groups: Groups) -> None:
    calls = [gatherer.submit(Call(len, items=range(size))) for size in (60, 40, 1, 500, 99, 1, 1)]
    assert await asyncio.gather(*calls) == [60, 40, 1, 500, 99, 1, 1]
    assert groups.sizes == [2, 1, 1, 2, 1]


async def test_a_call_cancelled_before_it_began_is_not_made(gatherer: Gatherer, groups: Groups) -> None:
    made: list[str] = []
    first = await _held(gatherer, groups)
    calls = [gatherer.submit(Call(partial(made.append, name))) for name in ("a", "b", "c")]
    calls[1].cancel()
    groups.may_go.set()
    await asyncio.gather(first, calls[0], calls[2])
    assert made == ["a", "c"]


async def test_a_call_cancelled_under_way_leaves_the_others_their_own_answers(
    gatherer: Gatherer, groups: Groups
) -> None:
    groups.may_go.clear()
    calls = [gatherer.submit(Call(partial(str, number))) for number in range(5)]
    await asyncio.to_thread(groups.began.wait, 30)
    calls[0].cancel()
    calls[3].cancel()
    groups.may_go.set()
    assert [await calls[1], await calls[2], await calls[4]] == ["1", "2", "4"]


async def test_an_outcome_nobody_awaits_any_more_is_taken_care_of(gatherer: Gatherer, groups: Groups) -> None:
    unwanted: list[str] = []
    groups.may_go.clear()
    call = gatherer.submit(Call(partial(str, "late"), unwanted=unwanted.append))
    await asyncio.to_thread(groups.began.wait, 30)
    call.cancel()
    groups.may_go.set()
    await gatherer.drain()
    assert unwanted == ["late"]


async def test_an_outcome_is_taken_care_of_when_its_task_is_cancelled_before_it_can_use_it(
    gatherer: Gatherer, groups: Groups
) -> None:
    unwanted: list[str] = []
    groups.may_go.clear()
    call = Call(partial(str, "late"), unwanted=unwanted.append)
    task = asyncio.create_task(gatherer.answer(call))
    await asyncio.sleep(0)
    cancelled: list[bool] = []
    # Delivered right after the other one, before its task can take a step.
    canceller = gatherer.submit(Call(partial(str, "canceller"), unwanted=lambda _: cancelled.append(task.cancel())))
    await asyncio.to_thread(groups.began.wait, 30)
    canceller.cancel()
    groups.may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert isinstance(call.future, asyncio.Future)
    assert call.future.result() == "late"
    assert unwanted == ["late"]


async def test_the_thread_ends(gatherer: Gatherer) -> None:
    await gatherer.submit(Call(partial(str, 1)))
    assert _threads() == ["test-gatherer"]
    gatherer.end()
    gatherer.join()
    assert _threads() == []
    gatherer._thread = None


async def _held(gatherer: Gatherer, groups: Groups) -> asyncio.Future[str]:
    """A first call, in a group that is being run and waits."""
    groups.may_go.clear()
    first = gatherer.submit(Call(partial(str, "first")))
    await asyncio.to_thread(groups.began.wait, 30)
    return first


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "test-gatherer"]
