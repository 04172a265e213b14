"""Concurrent calls share a transaction, with the same results as single calls."""

from __future__ import annotations

import asyncio

import pytest

from penstock import AsyncStore, DuplicateAddress, LeaseLost, PayloadTooLarge, State, StoreFull
from penstock.client.aio.queue import AsyncQueue
from tests.client.observed_engine import Observed

pytestmark = pytest.mark.anyio
OWN_ID = "019a8c3e-7b2d-7abc-8def-00000000002a"


async def test_sends_to_one_queue_become_one_send(queue: AsyncQueue, engine: Observed) -> None:
    payloads = [b"message %d" % number for number in range(100)]
    ids = await asyncio.gather(*[queue.send(payload) for payload in payloads])
    assert engine.counts["send"] == 1
    assert [(await queue.find(one)).payload for one in ids] == payloads
    received = await queue.receive(limit=200)
    assert [delivery.payload for delivery in received] == payloads
    assert [delivery.id for delivery in received] == ids


async def test_thousands_of_concurrent_sends_become_one_send_in_order(queue: AsyncQueue, engine: Observed) -> None:
    payloads = [b"message %d" % number for number in range(2_003)]
    ids = await asyncio.gather(*[queue.send(payload) for payload in payloads])
    assert engine.counts["send"] == 1
    received = await queue.receive(limit=len(payloads) + 1)
    assert [(delivery.id, delivery.payload) for delivery in received] == list(zip(ids, payloads, strict=True))


async def test_sends_of_several_messages_get_back_their_own_ids(queue: AsyncQueue) -> None:
    sizes = (3, 0, 1, 5, 2)
    sent = [[b"%d of %d" % (number, size) for number in range(size)] for size in sizes]
    answers = await asyncio.gather(*[queue.send_many(payloads) for payloads in sent])
    found = [[(await queue.find(one)).payload for one in ids] for ids in answers]
    assert found == sent


async def test_sends_to_different_queues_are_kept_apart(store: AsyncStore, engine: Observed) -> None:
    queues = [await store.queue(name) for name in ("a", "b", "c")]
    sends = [queue.send(f"{queue.name} {number}".encode()) for number in range(10) for queue in queues]
    await asyncio.gather(*sends)
    assert engine.counts["send"] == 3
    assert engine.counts["together"] == 1
    for queue in queues:
        payloads = [delivery.payload.decode() for delivery in await queue.receive(limit=100)]
        assert payloads == [f"{queue.name} {number}" for number in range(10)]


async def test_a_message_that_is_too_large_fails_alone(queue: AsyncQueue) -> None:
    payloads = [b"a" * size for size in (10, 20, 1001, 30)]
    answers = await asyncio.gather(*[queue.send(payload) for payload in payloads], return_exceptions=True)
    assert [isinstance(answer, PayloadTooLarge) for answer in answers] == [False, False, True, False]
    received = await queue.receive(limit=10)
    assert [delivery.payload for delivery in received] == [payloads[0], payloads[1], payloads[3]]
    assert [delivery.id for delivery in received] == [answers[0], answers[1], answers[3]]


async def test_the_same_id_is_sent_once(queue: AsyncQueue, engine: Observed) -> None:
    answers = await asyncio.gather(queue.send(b"1", id=OWN_ID), queue.send(b"2"), queue.send(b"3", id=OWN_ID))
    assert answers[0] == answers[2] == OWN_ID
    assert answers[1] != OWN_ID
    assert engine.counts["send"] == 3
    assert [delivery.payload for delivery in await queue.receive(limit=10)] == [b"1", b"2"]


async def test_a_duplicate_address_fails_only_the_second_send(queue: AsyncQueue) -> None:
    answers = await asyncio.gather(
        queue.send(b"1"),
        queue.send(b"2", address="here"),
        queue.send(b"3"),
        queue.send(b"4", address="here"),
        queue.send(b"5"),
        return_exceptions=True,
    )
    assert isinstance(answers[3], DuplicateAddress)
    assert answers[3].existing_id == answers[1]
    assert [delivery.payload for delivery in await queue.receive(limit=10)] == [b"1", b"2", b"3", b"5"]


async def test_settlements_of_one_group_become_one(queue: AsyncQueue, engine: Observed) -> None:
    await queue.send_many([b"%d" % number for number in range(30)])
    deliveries = await queue.receive(limit=30)
    await deliveries[7].nak("first word")
    engine.counts.clear()
    answers = await asyncio.gather(*[delivery.ack() for delivery in deliveries], return_exceptions=True)
    assert engine.counts["settle"] == 1
    assert [place for place, answer in enumerate(answers) if isinstance(answer, LeaseLost)] == [7]
    assert str(deliveries[7].id) in str(answers[7])
    stats = await queue.stats("default")
    assert stats.done == 29


async def test_settlements_by_different_groups_are_kept_apart(queue: AsyncQueue) -> None:
    for group in ("default", "other"):
        await queue.receive(group=group)
    await queue.send_many([b"1", b"2"])
    ours = await queue.receive(limit=2)
    theirs = await queue.receive(limit=2, group="other")
    await asyncio.gather(ours[0].ack(), theirs[0].reject("no"), ours[1].reject("no"), theirs[1].ack())
    stats = await queue.stats()
    outcomes = {group: (stats[group].done, stats[group].dead) for group in ("default", "other")}
    assert outcomes == {"default": (1, 1), "other": (1, 1)}
    letters = {(letter.group, letter.payload): letter.outcome for letter in await queue.dead_letters()}
    assert letters == {("default", b"2"): State.REJECTED, ("other", b"1"): State.REJECTED}


async def test_a_receive_finds_what_is_sent_at_the_same_time(queue: AsyncQueue) -> None:
    received, _ = await asyncio.gather(queue.receive(), queue.send(b"now"))
    assert [delivery.payload for delivery in received] == [b"now"]


async def test_merged_receives_have_their_own_tokens(queue: AsyncQueue, engine: Observed) -> None:
    await queue.send_many([b"1", b"2"])
    receives = await asyncio.gather(*[queue.receive() for _ in range(50)])
    found = [deliveries[0] for deliveries in receives if deliveries]
    assert [delivery.payload for delivery in found] == [b"1", b"2"]
    assert found[0].token < found[1].token
    assert engine.counts["receive"] == 3


async def test_a_call_that_is_not_merged_splits_the_group(queue: AsyncQueue) -> None:
    await asyncio.gather(queue.send(b"before"), queue.flush(), queue.send(b"after"))
    assert [delivery.payload for delivery in await queue.receive(limit=10)] == [b"after"]


async def test_a_sweep_runs_beside_sends(store: AsyncStore, queue: AsyncQueue, engine: Observed) -> None:
    answers = await asyncio.gather(queue.send(b"1"), queue.send(b"2"), store.sweep(), queue.send(b"3"))
    assert answers[2].trimmed == 0
    assert engine.counts["together"] == 0, "a sweep is long and has transactions of its own"
    assert [delivery.payload for delivery in await queue.receive(limit=10)] == [b"1", b"2", b"3"]


async def test_a_store_error_fails_every_merged_call(store: AsyncStore, queue: AsyncQueue, engine: Observed) -> None:
    other = await store.queue("other")
    engine.fail("together", StoreFull("no room"))
    answers = await asyncio.gather(queue.send(b"1"), queue.send(b"2"), other.send(b"3"), return_exceptions=True)
    assert [type(answer) for answer in answers] == [StoreFull] * 3
    assert len({id(answer) for answer in answers}) == 3
    assert engine.counts["together"] == 1, "trying each alone would wait for the same store again"
    engine.fail("together", None)
    await asyncio.gather(queue.send(b"4"), other.send(b"5"))
    assert [delivery.payload for delivery in await queue.receive(limit=10)] == [b"4"]


async def test_reading_does_not_wait_for_a_commit(queue: AsyncQueue, engine: Observed) -> None:
    message_id = await queue.send(b"there")
    arrived, may_go = engine.hold("together")
    sending = asyncio.gather(queue.send(b"1"), queue.send(b"2", id=OWN_ID))
    await asyncio.to_thread(arrived.wait, 30)
    message = await asyncio.wait_for(queue.find(message_id), 60)
    assert message.payload == b"there"
    assert not sending.done()
    may_go.set()
    await sending
