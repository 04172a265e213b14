"""Calls of many tasks run in groups on one thread, and each task gets its own outcome."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from functools import partial

import pytest

from penstock.client.aio.call import Call, Operation
from penstock.client.aio.coalescer import Coalescer, run_each

pytestmark = pytest.mark.anyio


class Groups:
    """Runs calls one by one, records their groups, and can block inside a group."""

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
        assert self.may_go.wait(60)
        run_each(calls)


@pytest.fixture
def groups() -> Groups:
    return Groups()


@pytest.fixture
async def coalescer(groups: Groups) -> AsyncIterator[Coalescer]:
    coalescer = Coalescer(asyncio.get_running_loop(), "test-coalescer", groups.run, cap=100)
    yield coalescer
    groups.may_go.set()
    await coalescer.drain()
    coalescer.end()
    coalescer.join()


async def test_calls_made_together_run_in_one_group_on_one_thread(coalescer: Coalescer, groups: Groups) -> None:
    answers = await asyncio.gather(*[coalescer.call(Operation(partial(str, number))) for number in range(50)])
    assert answers == [str(number) for number in range(50)]
    assert groups.sizes == [50]
    assert threading.get_ident() not in groups.threads


async def test_calls_made_while_a_group_runs_form_the_next_group(coalescer: Coalescer, groups: Groups) -> None:
    first = await _held(coalescer, groups)
    others = [coalescer.call(Operation(partial(str, number))) for number in range(7)]
    await asyncio.sleep(0)
    groups.may_go.set()
    assert await first == "first"
    assert await asyncio.gather(*others) == [str(number) for number in range(7)]
    assert groups.sizes == [1, 7]


async def test_an_error_stays_with_its_call(coalescer: Coalescer) -> None:
    calls = [coalescer.call(Operation(partial(int, text))) for text in ("1", "x", "3")]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert answers[0::2] == [1, 3]
    assert isinstance(answers[1], ValueError)


async def test_a_group_that_cannot_be_run_fails_each_of_its_calls(coalescer: Coalescer, groups: Groups) -> None:
    def fail(calls: Sequence[Call]) -> None:
        raise ValueError("a mistake")

    coalescer._run = fail
    calls = [coalescer.call(Operation(partial(str, number))) for number in range(3)]
    answers = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 60)
    assert [type(answer) for answer in answers] == [ValueError] * 3
    coalescer._run = groups.run
    assert await coalescer.call(Operation(partial(str, "again"))) == "again"


async def test_a_group_has_at_most_as_many_messages_as_the_cap(coalescer: Coalescer, groups: Groups) -> None:
    calls = [coalescer.call(Operation(partial(int, size)), None, size) for size in (60, 40, 1, 500, 99, 1, 1)]
    assert await asyncio.gather(*calls) == [60, 40, 1, 500, 99, 1, 1]
    assert groups.sizes == [2, 1, 1, 2, 1]


async def test_a_call_cancelled_before_it_began_is_not_made(coalescer: Coalescer, groups: Groups) -> None:
    made: list[str] = []
    first = await _held(coalescer, groups)
    calls = [coalescer.call(Operation(partial(made.append, name))) for name in ("a", "b", "c")]
    calls[1].cancel()
    groups.may_go.set()
    await asyncio.gather(first, calls[0], calls[2])
    assert made == ["a", "c"]


async def test_a_call_cancelled_under_way_leaves_the_others_their_own_answers(
    coalescer: Coalescer, groups: Groups
) -> None:
    groups.may_go.clear()
    calls = [coalescer.call(Operation(partial(str, number))) for number in range(5)]
    await asyncio.to_thread(groups.began.wait, 30)
    calls[0].cancel()
    calls[3].cancel()
    groups.may_go.set()
    assert [await calls[1], await calls[2], await calls[4]] == ["1", "2", "4"]


async def test_the_outcome_of_a_cancelled_call_is_discarded(coalescer: Coalescer, groups: Groups) -> None:
    discarded: list[str] = []
    groups.may_go.clear()
    call = coalescer.call(Operation(partial(str, "late"), discard=discarded.append))
    await asyncio.to_thread(groups.began.wait, 30)
    call.cancel()
    groups.may_go.set()
    await coalescer.drain()
    assert discarded == ["late"]


async def test_an_outcome_is_discarded_when_its_task_is_cancelled_before_it_runs_again(
    coalescer: Coalescer, groups: Groups
) -> None:
    discarded: list[str] = []
    groups.may_go.clear()
    operation = Operation(partial(str, "late"), discard=discarded.append)
    task = asyncio.create_task(coalescer.result(operation))
    await asyncio.sleep(0)
    cancelled: list[bool] = []
    # Completed right after the other one, before its task runs.
    canceller = coalescer.call(Operation(partial(str, "canceller"), discard=lambda _: cancelled.append(task.cancel())))
    await asyncio.to_thread(groups.began.wait, 30)
    canceller.cancel()
    groups.may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert discarded == ["late"]


async def test_the_thread_ends(coalescer: Coalescer) -> None:
    await coalescer.call(Operation(partial(str, 1)))
    assert _threads() == ["test-coalescer"]
    coalescer.end()
    coalescer.join()
    assert _threads() == []
    coalescer._thread = None


async def _held(coalescer: Coalescer, groups: Groups) -> asyncio.Future[str]:
    """A first call, whose group is blocked while it runs."""
    groups.may_go.clear()
    first = coalescer.call(Operation(partial(str, "first")))
    await asyncio.to_thread(groups.began.wait, 30)
    return first


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "test-coalescer"]
