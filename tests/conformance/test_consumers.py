"""Consumers: registration, birth order and heartbeats."""

from __future__ import annotations

from typing import Any
from zlib import crc32

import pytest

from penstock import ConsumerRemoved, InvalidInput, LeaseLost, Outgoing, Queue, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all
from tests.conformance.clock import Clock


def test_consumers_have_their_place_in_birth_order(queue: Queue, clock: Clock) -> None:
    born = []
    for name in ("zoe", "adam", "mia"):
        born.append(queue.register(name, heartbeat_seconds=3))
        clock.advance(seconds=0.5)
    assert [consumer.index for consumer in born] == [0, 1, 2]
    assert [(info.name, info.index, info.living) for info in queue.consumers()] == [
        ("zoe", 0, 3),
        ("adam", 1, 3),
        ("mia", 2, 3),
    ]


def test_a_consumer_knows_what_it_registered_with(queue: Queue, clock: Clock) -> None:
    info = queue.register("zoe", group="billing", heartbeat_seconds=3).info
    assert (info.name, info.queue, info.group, info.heartbeat_seconds) == ("zoe", "orders", "billing", 3)
    assert info.registered_at == info.heartbeat_at == clock.now


def test_registering_again_keeps_the_place(queue: Queue) -> None:
    first = queue.register("zoe")
    queue.register("adam")
    again = queue.register("zoe")
    assert (again.index, again.info.id) == (0, first.info.id)
    assert len(queue.consumers()) == 2


def test_birth_order_is_kept_for_each_queue_and_group(queue: Queue, store: Store) -> None:
    queue.register("zoe")
    assert queue.register("adam", group="billing").index == 0
    assert store.queue("other").register("mia").index == 0
    assert sorted(info.name for info in store.consumers()) == ["adam", "mia", "zoe"]
    assert [info.name for info in store.queue("other").consumers()] == ["mia"]


def test_a_heartbeat_keeps_a_consumer_alive(queue: Queue, store: Store, clock: Clock) -> None:
    consumer = queue.register("zoe", heartbeat_seconds=3)
    for _ in range(5):
        clock.advance(seconds=5)
        assert consumer.heartbeat().heartbeat_at == clock.now
        assert store.sweep().removed_consumers == 0


def test_a_consumer_that_missed_two_heartbeats_is_removed_by_the_sweep(
    queue: Queue, store: Store, clock: Clock
) -> None:
    consumer = queue.register("zoe", heartbeat_seconds=3)
    clock.advance(seconds=5.9)
    assert store.sweep().removed_consumers == 0
    clock.advance(seconds=0.2)
    assert store.sweep().removed_consumers == 1
    assert queue.consumers() == []
    with pytest.raises(ConsumerRemoved, match="zoe"):
        consumer.heartbeat()


def test_a_removed_consumer_registers_again_at_the_end_of_the_order(queue: Queue, store: Store, clock: Clock) -> None:
    queue.register("zoe", heartbeat_seconds=3)
    queue.register("adam", heartbeat_seconds=3_001)
    clock.advance(seconds=7)
    store.sweep()
    assert queue.register("zoe").index == 1


def test_the_leases_of_a_removed_consumer_are_released_at_once(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1)
    queue.register("zoe", heartbeat_seconds=3)
    holder = take(queue, consumer="zoe", lease_seconds=1_009)
    clock.advance(seconds=7)
    store.sweep()
    successor = take(queue, consumer="adam")
    assert successor.id == message_id
    with pytest.raises(LeaseLost):
        holder.ack()
    successor.ack()
    assert_trail_is_legal(queue, message_id)
    assert_books_balance(queue, sent=1)


def test_the_leases_of_others_stay_when_a_consumer_is_removed(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send_many([1, 2])
    queue.register("zoe", heartbeat_seconds=3)
    take(queue, consumer="zoe", lease_seconds=1_009)
    other = take(queue, consumer="adam", lease_seconds=1_009)
    clock.advance(seconds=7)
    store.sweep()
    assert payloads(take_all(queue)) == [1]
    other.ack()


def test_the_leases_of_a_consumer_that_left_are_released_at_once(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    consumer = queue.register("zoe", heartbeat_seconds=3)
    deliveries = take_all(queue, consumer="zoe")
    deliveries[0].ack()
    assert consumer.deregister() == 2
    assert queue.consumers() == []
    assert payloads(take_all(queue)) == [2, 3]
    with pytest.raises(LeaseLost):
        deliveries[1].ack()


def test_leaving_frees_the_leases_of_that_group_only(queue: Queue) -> None:
    queue.send(1)
    consumer = queue.register("zoe")
    take(queue, consumer="zoe")
    theirs = take(queue, consumer="zoe", group="billing")
    consumer.deregister()
    theirs.ack()


def test_the_living_move_up_when_one_leaves(queue: Queue) -> None:
    zoe, adam = queue.register("zoe"), queue.register("adam")
    assert adam.index == 1
    zoe.deregister()
    assert (adam.heartbeat().index, adam.index, adam.info.living) == (0, 0, 1)


def test_a_consumer_that_left_must_register_again(queue: Queue) -> None:
    consumer = queue.register("zoe")
    consumer.deregister()
    with pytest.raises(ConsumerRemoved):
        consumer.heartbeat()


def test_stats_count_the_living_consumers_of_a_group(queue: Queue) -> None:
    queue.send(1)
    take(queue, group="billing")
    consumer = queue.register("zoe")
    queue.register("adam")
    queue.register("mia", group="billing")
    assert (queue.stats("default").consumers, queue.stats("billing").consumers) == (2, 1)
    consumer.deregister()
    assert queue.stats("default").consumers == 1


def test_a_receive_needs_no_registration(queue: Queue) -> None:
    queue.send(1)
    take(queue, consumer="stranger").ack()
    assert queue.consumers() == []


def test_a_consumer_starts_at_its_home_shards_and_works_around_the_ring(store: Store) -> None:
    queue = store.queue("sharded", shards=2, ordered=True)
    queue.register("zoe")
    queue.register("adam")
    keys = {crc32(f"key {n}".encode()) % 2: f"key {n}" for n in range(9)}
    queue.send_many([Outgoing(payload="home of zoe", key=keys[0]), Outgoing(payload="home of adam", key=keys[1])])
    assert take(queue, consumer="adam").json() == "home of adam"
    queue.send("next for adam", key=keys[1])
    assert take(queue, consumer="adam").json() == "home of zoe", "the home shard has an open lease, so on to the next"


def test_a_consumer_alone_works_through_all_shards(store: Store) -> None:
    queue = store.queue("sharded", shards=5)
    queue.register("zoe")
    queue.send_many([Outgoing(payload=n, key=f"key {n}") for n in range(30)])
    assert sorted(payloads(take_all(queue, consumer="zoe"))) == list(range(30))


@pytest.mark.parametrize(
    "options",
    [{"consumer": ""}, {"consumer": "a\nb"}, {"heartbeat_seconds": 0}, {"heartbeat_seconds": -1}, {"group": ""}],
    ids=str,
)
def test_bad_input_is_refused_and_nobody_is_registered(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        queue.register(**{"consumer": "zoe", **options})
    assert queue.consumers() == []
