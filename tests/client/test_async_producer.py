"""The asynchronous producer batches sends and loses no message silently."""

from __future__ import annotations

import asyncio

import pytest

from penstock import PayloadTooLarge, StoreFull
from penstock.client.aio.queue import AsyncQueue
from tests.client.observed_engine import Observed

pytestmark = pytest.mark.anyio
LONG = 60


async def test_the_end_of_the_block_sends_what_is_left(queue: AsyncQueue, engine: Observed) -> None:
    async with queue.producer(batch_size=100, linger_seconds=LONG) as producer:
        for number in range(7):
            await producer.send(b"%d" % number, priority=number)
        assert engine.counts["send"] == 0
    assert engine.counts["send"] == 1
    assert [message.payload for message in await queue.peek()] == [b"%d" % number for number in range(7)]
    with pytest.raises(RuntimeError, match="closed"):
        await producer.send(b"too late")


async def test_a_full_batch_is_sent_at_once(queue: AsyncQueue, engine: Observed) -> None:
    producer = queue.producer(batch_size=3, linger_seconds=LONG)
    for number in range(7):
        await producer.send(b"%d" % number)
    assert engine.counts["send"] == 2
    assert len(await queue.peek()) == 6
    await producer.close()
    assert len(await queue.peek()) == 7


async def test_a_batch_is_sent_after_its_linger_time(queue: AsyncQueue) -> None:
    async with queue.producer(batch_size=100, linger_seconds=0.01) as producer:
        await producer.send(b"1")
        (delivery,) = await asyncio.wait_for(queue.receive(wait_seconds=LONG), 60)
        assert delivery.payload == b"1"


async def test_many_tasks_share_one_producer(queue: AsyncQueue) -> None:
    async with queue.producer(batch_size=10, linger_seconds=0.001) as producer:
        await asyncio.gather(*[producer.send(b"%d" % number) for number in range(95)])
    payloads = [int(message.payload) for message in await queue.peek(limit=1000)]
    assert payloads == list(range(95))


async def test_accepted_messages_stay_when_the_next_is_refused(queue: AsyncQueue, engine: Observed) -> None:
    engine.fail("send", StoreFull("no room"))
    producer = queue.producer(batch_size=2, linger_seconds=LONG)
    taken = [await producer.send(b"1"), await producer.send(b"2")]
    with pytest.raises(StoreFull):
        await producer.send(b"not taken")
    with pytest.raises(StoreFull):
        await producer.flush()
    with pytest.raises(StoreFull):
        await producer.close()
    assert not any(one.is_sent for one in taken)
    engine.fail("send", None)
    await producer.close()
    assert all(one.is_sent for one in taken)
    assert [message.payload for message in await queue.peek()] == [b"1", b"2"]


async def test_a_failing_store_is_retried_after_a_pause(queue: AsyncQueue, engine: Observed) -> None:
    engine.fail("send", StoreFull("no room"))
    producer = queue.producer(batch_size=100, linger_seconds=0.001)
    taken = await producer.send(b"1")
    while not engine.counts["send"]:
        await asyncio.sleep(0.001)
    engine.fail("send", None)
    async with asyncio.timeout(60):
        while not taken.is_sent:
            await asyncio.sleep(0.001)
    assert [message.payload for message in await queue.peek()] == [b"1"]


async def test_an_error_of_a_lingering_send_is_raised_by_the_next_call(queue: AsyncQueue) -> None:
    producer = queue.producer(batch_size=100, linger_seconds=0.001)
    refused = await producer.send(b"x" * 1001)
    async with asyncio.timeout(60):
        while refused.error is None:
            await asyncio.sleep(0.001)
    with pytest.raises(PayloadTooLarge):
        await producer.send(b"not gathered")
    async with producer:
        await producer.send(b"gathered")
    assert [message.payload for message in await queue.peek()] == [b"gathered"]


async def test_cancelling_a_sender_sends_no_message_twice(queue: AsyncQueue, engine: Observed) -> None:
    arrived, may_go = engine.hold("send")
    producer = queue.producer(batch_size=2, linger_seconds=LONG)
    await producer.send(b"1")
    sending = asyncio.create_task(producer.send(b"2"))
    await asyncio.to_thread(arrived.wait, 30)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    may_go.set()
    await producer.close()
    assert [message.payload for message in await queue.peek()] == [b"1", b"2"]


async def test_buffered_messages_of_a_cancelled_sender_are_sent(queue: AsyncQueue, engine: Observed) -> None:
    arrived, may_go = engine.hold("send")
    engine.fail("send", StoreFull("no room"))
    producer = queue.producer(batch_size=1, linger_seconds=LONG)
    sending = asyncio.create_task(producer.send(b"1"))
    await asyncio.to_thread(arrived.wait, 30)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    may_go.set()
    with pytest.raises(StoreFull):
        await producer.send(b"2")
    engine.fail("send", None)
    await producer.close()
    assert [message.payload for message in await queue.peek()] == [b"1"]


async def test_messages_buffered_during_a_send_form_the_next_batch(queue: AsyncQueue, engine: Observed) -> None:
    arrived, may_go = engine.hold("send")
    producer = queue.producer(batch_size=2, linger_seconds=LONG)
    await producer.send(b"1")
    sending = asyncio.create_task(producer.send(b"2"))
    await asyncio.to_thread(arrived.wait, 30)
    following = asyncio.create_task(producer.send(b"3"))
    await asyncio.sleep(0)
    may_go.set()
    await asyncio.wait_for(asyncio.gather(sending, following), 60)
    assert [message.payload for message in await queue.peek()] == [b"1", b"2"]
    await producer.close()
    assert [message.payload for message in await queue.peek()] == [b"1", b"2", b"3"]
    assert engine.counts["send"] == 2
