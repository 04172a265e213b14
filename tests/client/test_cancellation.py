"""Cancelling a task does not affect the calls of others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import suppress
from itertools import count
from typing import Any

import pytest

from penstock import AsyncStore
from penstock.client.aio.queue import AsyncQueue
from tests.client.observed_engine import Observed

pytestmark = pytest.mark.anyio
CANCELLATIONS = 1000
TASKS = 40


@pytest.fixture
def chance(seed: int) -> random.Random:
    return random.Random(seed)


async def test_each_task_gets_its_own_result(queue: AsyncQueue, chance: random.Random) -> None:
    sent: dict[str, bytes] = {}
    numbers = count()

    async def send_and_look() -> None:
        while True:
            payload = b"nonce %d" % next(numbers)
            message_id = await queue.send(payload)
            sent[message_id] = payload
            message = await queue.find(message_id)
            assert message.id == message_id
            assert message.payload == payload

    await _cancel_at_random(send_and_look, chance)
    assert len(sent) > CANCELLATIONS / 10
    stored = await queue.peek(limit=1_000_000)
    assert sent.items() <= {message.id: message.payload for message in stored}.items()
    # Each cancelled send was stored once or not at all.
    assert len({message.payload for message in stored}) == len(stored)


async def test_no_message_is_lost_or_done_twice(queue: AsyncQueue, chance: random.Random) -> None:
    done: list[bytes] = []

    async def receive_and_ack() -> None:
        while True:
            for delivery in await queue.receive(limit=chance.randrange(1, 4), wait_seconds=60):
                await delivery.ack()
                done.append(delivery.payload)

    payloads = [b"%d" % number for number in range(500)]
    await queue.send_many(payloads)
    await _cancel_at_random(receive_and_ack, chance)
    assert len(done) == len(set(done))
    assert set(done) <= set(payloads)
    stats = await queue.stats("default")
    # The ack of a task that was cancelled before its reply may have been committed.
    assert stats.done >= len(done)
    assert stats.done + stats.in_progress + stats.available + stats.redo == len(payloads)


async def test_cancelling_a_pending_send_removes_it_and_sends_the_others(queue: AsyncQueue, engine: Observed) -> None:
    arrived, may_go = engine.hold("send")
    first = asyncio.create_task(queue.send(b"first"))
    await asyncio.to_thread(arrived.wait, 30)
    sends = [asyncio.create_task(queue.send(b"%d" % number)) for number in range(5)]
    await asyncio.sleep(0)
    for place in (0, 3):
        sends[place].cancel()
    await asyncio.wait([sends[0], sends[3]])
    may_go.set()
    ids = [await first, *[await sends[place] for place in (1, 2, 4)]]
    received = await queue.receive(limit=10)
    assert [delivery.payload for delivery in received] == [b"first", b"1", b"2", b"4"]
    assert [delivery.id for delivery in received] == ids


async def test_a_cancelled_receive_releases_its_messages(queue: AsyncQueue, engine: Observed) -> None:
    await queue.send_many([b"1", b"2"])
    arrived, may_go = engine.hold("receive")
    receiving = asyncio.create_task(queue.receive(limit=2))
    await asyncio.to_thread(arrived.wait, 30)
    receiving.cancel()
    may_go.set()
    with pytest.raises(asyncio.CancelledError):
        await receiving
    again = await queue.receive(limit=2, wait_seconds=10)
    assert [(delivery.payload, delivery.attempt) for delivery in again] == [(b"1", 1), (b"2", 1)]


async def test_a_receive_cancelled_during_close_releases_its_messages(
    store: AsyncStore, queue: AsyncQueue, engine: Observed, url: str
) -> None:
    from penstock import connect

    await queue.send(b"1")
    arrived, may_go = engine.hold("receive")
    receiving = asyncio.create_task(queue.receive())
    await asyncio.to_thread(arrived.wait, 30)
    receiving.cancel()
    closing = asyncio.create_task(store.close())
    await asyncio.sleep(0)
    may_go.set()
    await closing
    with connect(url) as other:
        assert [delivery.attempt for delivery in other.queue("orders").receive()] == [1]


async def _cancel_at_random(work: Callable[[], Coroutine[Any, Any, None]], chance: random.Random) -> None:
    """Run tasks, and cancel and replace one at a time."""
    tasks = [asyncio.create_task(work()) for _ in range(TASKS)]
    for _ in range(CANCELLATIONS):
        async for _ in _moments(chance):
            pass
        place = chance.randrange(TASKS)
        tasks[place].cancel()
        with suppress(asyncio.CancelledError):
            await tasks[place]
        tasks[place] = asyncio.create_task(work())
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(outcome, asyncio.CancelledError), outcome


async def _moments(chance: random.Random) -> AsyncIterator[None]:
    """Yield to the event loop a few times; sometimes long enough for a commit."""
    for _ in range(chance.randrange(6)):
        await asyncio.sleep(chance.choice((0, 0, 0, 0.0005)))
        yield
