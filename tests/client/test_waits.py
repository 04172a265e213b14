"""Waiting tasks are woken by every commit that concerns them, at little cost."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest

import penstock
from penstock import AsyncStore, MessageFailed, State, StoreUnavailable, WaitTimeout
from penstock.client.aio import watcher as watcher_module
from penstock.client.aio.delivery import AsyncDelivery
from penstock.client.aio.queue import AsyncQueue
from tests.client.observed_engine import Observed

pytestmark = pytest.mark.anyio
# Much longer than any wait here, so that a lost wake-up fails a test instead of delaying it.
LONG = 100
SOON = 50


@pytest.fixture(autouse=True)
def no_backstop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a wake-up ends a wait in time."""
    monkeypatch.setattr(watcher_module, "BACKSTOP_SECONDS", LONG)


async def test_one_send_wakes_a_thousand_tasks(queue: AsyncQueue, engine: Observed) -> None:
    waiting = await _waiting(queue, 1000)
    await queue.send_many([b"%d" % number for number in range(1000)])
    received = await asyncio.wait_for(asyncio.gather(*waiting), SOON)
    assert sorted(int(deliveries[0].payload) for deliveries in received) == list(range(1000))


async def test_one_message_does_not_wake_everybody(queue: AsyncQueue, engine: Observed) -> None:
    waiting = await _waiting(queue, 1000)
    engine.counts.clear()
    awakened = _count_wakes(queue)
    await queue.send(b"1")
    done, _ = await asyncio.wait(waiting, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    assert awakened() < 500
    await _cancel(waiting)


async def test_a_task_cancelled_when_it_is_woken_does_not_leave_the_others_asleep(queue: AsyncQueue) -> None:
    waiting = await _waiting(queue, 100)
    watcher = queue.store.executor._watcher
    (awaited,) = watcher._awaited.values()
    woken = list(awaited.waiting)[:16]
    for future, task in zip(woken, waiting, strict=False):
        future.add_done_callback(lambda _, task=task: task.cancel())  # type: ignore[misc]
    await queue.send(b"1")
    done, _ = await asyncio.wait(waiting[16:], timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    await _cancel(waiting)


async def test_a_thousand_waiting_tasks_cause_one_check_per_commit(
    store: AsyncStore, queue: AsyncQueue, engine: Observed
) -> None:
    waiting = await _waiting(queue, 1000)
    other = await store.queue("other")
    engine.counts.clear()
    for number in range(50):
        await other.send(b"%d" % number)
    assert engine.counts["ready_in"] <= 51
    assert engine.counts["receive"] == 0
    assert not any(task.done() for task in waiting)
    await _cancel(waiting)


async def test_a_send_from_elsewhere_wakes(queue: AsyncQueue, url: str) -> None:
    with penstock.connect(url) as other:
        # The second time no thread has to start.
        for _ in range(2):
            (waiting,) = await _waiting(queue, 1)
            await asyncio.to_thread(other.queue("orders").send, b"from elsewhere")
            (delivery,) = await asyncio.wait_for(waiting, SOON)
            assert delivery.payload == b"from elsewhere"


async def test_a_delayed_message_is_there_when_it_is_due(queue: AsyncQueue) -> None:
    waiting = await _waiting(queue, 2)
    began = time.monotonic()
    await queue.send(b"later", delay_seconds=0.3)
    done, _ = await asyncio.wait(waiting, timeout=SOON, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == 1
    # Well before the backstop poll.
    assert 0.25 < time.monotonic() - began < SOON
    await _cancel(waiting)


async def test_each_task_has_its_own_timeout(queue: AsyncQueue) -> None:
    began = time.monotonic()
    late = asyncio.create_task(queue.receive(wait_seconds=LONG))
    assert await queue.receive(wait_seconds=0.05) == []
    assert 0.05 <= time.monotonic() - began < SOON
    assert not late.done()
    await _cancel([late])


async def test_a_commit_just_before_the_wait_is_noticed(queue: AsyncQueue) -> None:
    """A send between an empty receive and the wait after it, many times."""
    for number in range(200):
        receiving = asyncio.create_task(queue.receive(wait_seconds=LONG))
        for _ in range(number % 10):
            await asyncio.sleep(0)
        await queue.send(b"%d" % number)
        (delivery,) = await asyncio.wait_for(receiving, SOON)
        await delivery.ack()


async def test_a_commit_before_listening_began_is_noticed(queue: AsyncQueue, engine: Observed) -> None:
    arrived, may_go = engine.hold("seen")
    (waiting,) = await _waiting(queue, 1)
    await asyncio.to_thread(arrived.wait, 30)
    await queue.stats()  # a read queued behind the first check, which has ended then
    await queue.send(b"1")
    may_go.set()
    assert len(await asyncio.wait_for(waiting, SOON)) == 1


async def test_a_new_key_is_checked_at_once_while_others_wait(
    store: AsyncStore, queue: AsyncQueue, engine: Observed
) -> None:
    waiting = await _waiting(queue, 1)
    async with asyncio.timeout(SOON):
        while not engine.counts["wait"]:
            await asyncio.sleep(0.001)
    await asyncio.wait_for(store.executor._watcher.until("new", lambda: 0, LONG), SOON)
    await _cancel(waiting)


async def test_watched_keys_are_checked_in_turn(store: AsyncStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without commits, the cost of polling does not depend on the number of watched keys."""
    monkeypatch.setattr(watcher_module, "BACKSTOP_SECONDS", 0.01)
    looks: Counter[int] = Counter()

    def never(number: int) -> None:
        looks[number] += 1

    tasks = [asyncio.create_task(store.executor._watcher.until(n, partial(never, n), LONG)) for n in range(500)]
    while len(looks) < 500:
        await asyncio.sleep(0.001)
    looks.clear()
    began = time.monotonic()
    while len(looks) < 500 and time.monotonic() - began < SOON:
        await asyncio.sleep(0.001)
    assert len(looks) == 500, "each has its turn"
    # The first checks may still be running, and a round may just have begun.
    rounds = (time.monotonic() - began) / 0.01 + 1
    assert looks.total() <= watcher_module.BACKSTOP_POLLS * rounds + 500
    await _cancel(tasks)


async def test_waiting_for_addresses(queue: AsyncQueue) -> None:
    names = [f"address {number}" for number in range(20)]
    for name in names:
        await queue.send(name.encode(), address=name)
    waits = [asyncio.create_task(queue.wait(name)) for name in names]
    await asyncio.sleep(0.01)
    for delivery in await queue.receive(limit=20):
        if delivery.address == names[7]:
            await delivery.reject("not this one")
        else:
            await delivery.ack()
    answers = await asyncio.wait_for(asyncio.gather(*waits, return_exceptions=True), SOON)
    assert isinstance(answers.pop(7), MessageFailed)
    assert answers == [State.SUCCEEDED] * 19


async def test_waiting_for_an_address_ends_in_time(queue: AsyncQueue) -> None:
    await queue.send(b"1", address="here")
    with pytest.raises(WaitTimeout):
        await asyncio.wait_for(queue.wait("here", timeout_seconds=0.05), SOON)


async def test_closing_wakes_everybody_and_leaves_no_threads(url: str) -> None:
    store = await penstock.connect_async(url)
    queue = await store.queue("orders")
    waiting = await _waiting(queue, 100)
    await queue.stats()
    assert {"penstock-reader", "penstock-watcher", "penstock-writer"} <= set(_threads())
    sending = asyncio.gather(*[queue.send(b"%d" % number) for number in range(10)])
    await asyncio.sleep(0)
    await asyncio.wait_for(store.close(), SOON)
    assert _threads() == []
    assert len(await sending) == 10
    answers = await asyncio.gather(*waiting, return_exceptions=True)
    # Tasks woken by the sends received a message before the close.
    assert all(isinstance(answer, StoreUnavailable | list) for answer in answers)
    assert sum(isinstance(answer, StoreUnavailable) for answer in answers) >= 90
    await store.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        await queue.send(b"too late")
    with pytest.raises(StoreUnavailable, match="closed"):
        await queue.stats()


async def test_a_cancelled_close_still_closes(url: str) -> None:
    store = await penstock.connect_async(url)
    await _cancel(await _waiting(await store.queue("orders"), 1))
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    await _cancel([closing])
    await store.close()
    assert _threads() == []


async def test_leaving_the_async_with_block_closes_the_store(url: str) -> None:
    async with await penstock.connect_async(url) as store:
        queue = await store.queue("orders")
        await queue.send(b"1")
        assert _threads() != []
    assert _threads() == []


def test_a_store_belongs_to_its_event_loop(url: str) -> None:
    async def use() -> AsyncStore:
        store = await penstock.connect_async(url)
        queue = await store.queue("orders")
        await queue.send(b"1")
        assert len(await queue.receive(wait_seconds=1)) == 1
        await store.close()
        return store

    async def misuse(store: AsyncStore) -> None:
        with pytest.raises(RuntimeError, match="another event loop"):
            await store.close()

    async def misuse_open(store: AsyncStore) -> None:
        queue = AsyncQueue(store, "orders")
        for call in (queue.send(b"2"), queue.stats(), queue.receive(wait_seconds=1)):
            with pytest.raises(RuntimeError, match="another event loop"):
                await call

    for _ in range(3):
        asyncio.run(misuse(asyncio.run(use())))
    with asyncio.Runner() as runner:
        store = runner.run(penstock.connect_async(url))
        asyncio.run(misuse_open(store))
        runner.run(store.close())
    assert _threads() == []


async def _waiting(queue: AsyncQueue, tasks: int) -> list[asyncio.Task[list[AsyncDelivery]]]:
    """Tasks that received nothing and wait."""
    waiting = [asyncio.create_task(queue.receive(wait_seconds=LONG)) for _ in range(tasks)]
    watcher = queue.store.executor._watcher
    while sum(len(awaited.waiting) for awaited in watcher._awaited.values()) < tasks or not watcher._thread:
        await asyncio.sleep(0)
    return waiting


def _count_wakes(queue: AsyncQueue) -> Callable[[], int]:
    """The number of waiting tasks that were woken since."""
    (awaited,) = queue.store.executor._watcher._awaited.values()
    before = list(awaited.waiting)
    return lambda: sum(future.done() for future in before)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture(autouse=True)
def earlier() -> Iterator[None]:
    """Threads of earlier tests may still be ending."""
    _EARLIER.update(threading.enumerate())
    yield
    _EARLIER.clear()


_EARLIER: set[threading.Thread] = set()


def _threads() -> list[str]:
    """Threads of Penstock that this test has started."""
    started = set(threading.enumerate()) - _EARLIER
    return sorted(thread.name for thread in started if thread.name.startswith("penstock-"))
