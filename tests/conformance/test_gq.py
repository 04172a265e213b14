"""The document of gq, sentence by sentence, on every engine. `docs/seeds.md` names the test of each sentence."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from penstock import ConsumerRemoved, Event, InvalidInput, LeaseLost, Outgoing, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all, trail
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY

LONG = 3_600


@pytest.fixture
def once(store: Store) -> Queue:
    return store.queue("once", **{**POLICY, "delivery": "at_most_once"})


# -- producers and consumers -----------------------------------------------------------------------------------------


def test_many_producers_and_many_consumers_share_one_queue(store: Store) -> None:
    for sender in range(3):
        with store.producer("orders") as producer:
            for number in range(20):
                producer.send([sender, number])
    consumers = [store.consumer("orders", name=f"consumer {n}") for n in range(3)]
    received: Counter[str] = Counter()
    while batches := [batch for consumer in consumers if (batch := consumer.receive())]:
        for delivery in [delivery for batch in batches for delivery in batch]:
            received[str(delivery.json())] += 1
            delivery.ack()
    assert len(received) == 60
    assert set(received.values()) == {1}
    assert_books_balance(store.queue("orders"), sent=60)


def test_a_producer_pushes_each_message_by_default(store: Store) -> None:
    producer = store.producer("orders", linger_seconds=LONG)
    assert producer.batch_size == 1
    producer.send(1)
    assert payloads(store.queue("orders").peek()) == [1]
    producer.close()


def test_a_producer_gathers_a_push_batch(store: Store) -> None:
    with store.producer("orders", 3, linger_seconds=LONG) as producer:
        producer.send(1)
        producer.send(2)
        assert store.queue("orders").peek() == []
        producer.send(3)
        assert payloads(store.queue("orders").peek()) == [1, 2, 3]


def test_a_push_may_have_a_deadline(store: Store, clock: Clock) -> None:
    deadline = clock.now + timedelta(seconds=17)
    with store.producer("orders") as producer:
        producer.send(1, deadline_at=deadline)
    assert take(store.queue("orders")).deadline_at == deadline


def test_a_consumer_pops_ten_messages_by_default(store: Store) -> None:
    queue = store.queue("orders")
    queue.send_many(list(range(12)))
    consumer = store.consumer("orders")
    assert payloads(consumer.receive()) == list(range(10))
    assert payloads(consumer.receive()) == [10, 11]


def test_a_consumer_pops_as_many_as_its_batch_size(store: Store) -> None:
    store.queue("orders").send_many(list(range(5)))
    consumer = store.consumer("orders", 2)
    assert payloads(consumer.receive()) == [0, 1]
    assert payloads(consumer.receive(limit=1)) == [2]


@pytest.mark.parametrize("size", [0, -1, 1.5, "10", True], ids=repr)
def test_a_batch_size_that_is_none_is_refused(store: Store, size: Any) -> None:
    with pytest.raises(InvalidInput, match="batch_size"):
        store.producer("orders", size)
    with pytest.raises(InvalidInput, match="batch_size"):
        store.consumer("orders", size)
    assert store.consumers() == []


# -- heartbeats ------------------------------------------------------------------------------------------------------


def test_a_consumer_gets_its_index_in_birth_order(store: Store) -> None:
    consumers = [store.consumer("orders", name=name) for name in ("zoe", "adam", "mia")]
    assert [consumer.index for consumer in consumers] == [0, 1, 2]
    consumers[0].deregister()
    assert consumers[2].heartbeat().index == 1


def test_each_consumer_of_a_process_is_one_of_its_own(store: Store, clock: Clock) -> None:
    alive = store.consumer("orders", heartbeat_seconds=LONG, heartbeats_per_sweep=1)
    dead = store.consumer("orders", heartbeat_seconds=3)
    assert [alive.index, dead.index] == [0, 1]
    clock.advance(seconds=7)
    alive.heartbeat()
    with pytest.raises(ConsumerRemoved):
        dead.receive()
    assert [consumer.name for consumer in store.consumers()] == [alive.info.name]


def test_a_consumer_may_miss_as_many_heartbeats_as_it_registered_with(store: Store, clock: Clock) -> None:
    consumer = store.consumer("orders", name="zoe", heartbeat_seconds=3, max_missed_heartbeats=4)
    assert consumer.info.max_missed_heartbeats == 4
    clock.advance(seconds=14.9)
    assert store.sweep().removed_consumers == 0
    clock.advance(seconds=0.2)
    assert store.sweep().removed_consumers == 1


def test_every_so_many_heartbeats_a_consumer_removes_the_dead(store: Store, clock: Clock) -> None:
    store.queue("orders").send(1)
    dead = store.consumer("orders", name="dead", heartbeat_seconds=3, max_missed_heartbeats=2)
    [held] = dead.receive(lease_seconds=LONG)
    alive = store.consumer("orders", name="alive", heartbeat_seconds=3, heartbeats_per_sweep=4)
    clock.advance(seconds=9.1)
    for _ in range(3):
        assert alive.heartbeat().living == 2
    assert (alive.heartbeat().living, alive.index) == (1, 0)
    assert [delivery.id for delivery in alive.receive()] == [held.id], "what the dead one held is free at once"
    with pytest.raises(LeaseLost):
        held.ack()


def test_a_heartbeat_removes_the_dead_of_its_own_group_only(store: Store, clock: Clock) -> None:
    store.consumer("orders", name="elsewhere", group="billing", heartbeat_seconds=3)
    store.consumer("other", name="elsewhere", heartbeat_seconds=3)
    alive = store.consumer("orders", name="alive", heartbeat_seconds=LONG, heartbeats_per_sweep=1)
    clock.advance(seconds=7)
    alive.heartbeat()
    assert [info.name for info in store.consumers()] == ["elsewhere", "elsewhere", "alive"]


def test_a_removed_consumer_must_register_again_before_it_receives(store: Store, clock: Clock) -> None:
    queue = store.queue("orders")
    queue.send(1)
    consumer = store.consumer("orders", name="zoe", heartbeat_seconds=3)
    other = store.consumer("orders", name="adam", heartbeat_seconds=LONG, heartbeats_per_sweep=1)
    clock.advance(seconds=7)
    other.heartbeat()
    with pytest.raises(ConsumerRemoved, match="zoe"):
        consumer.receive()
    with pytest.raises(ConsumerRemoved, match="zoe"):
        queue.receive(consumer="zoe")
    with pytest.raises(ConsumerRemoved, match="zoe"):
        consumer.heartbeat()
    assert payloads(queue.peek()) == [1]
    assert consumer.register().index == 1
    assert payloads(consumer.receive()) == [1]


def test_others_receive_while_a_removed_consumer_may_not(store: Store, clock: Clock) -> None:
    queue = store.queue("orders")
    queue.send_many([1, 2, 3])
    store.consumer("orders", name="zoe", heartbeat_seconds=3)
    clock.advance(seconds=7)
    assert store.sweep().removed_consumers == 1
    assert take(queue, consumer="adam").json() == 1
    assert take(queue, consumer="zoe", group="billing").json() == 1, "it was a consumer of another group"
    receipts = queue.engine.receive_each("orders", "default", [("mia", 1)], 37)
    assert [len(receipt.rows) for receipt in receipts] == [1]


def test_a_consumer_that_left_by_itself_need_not_register_again_to_receive(store: Store) -> None:
    store.queue("orders").send(1)
    consumer = store.consumer("orders", name="zoe")
    consumer.deregister()
    assert payloads(consumer.receive()) == [1]


def test_a_removed_consumer_is_forgotten_after_a_day(store: Store, clock: Clock) -> None:
    queue = store.queue("orders", history_seconds=200_000)
    queue.send(1)
    store.consumer("orders", name="zoe", heartbeat_seconds=3)
    clock.advance(seconds=7)
    store.sweep()
    store.consumer("orders", name="adam", heartbeat_seconds=3)
    clock.advance(seconds=24 * 3600 + 1)
    store.sweep()
    with pytest.raises(ConsumerRemoved):
        queue.receive(consumer="adam")
    assert take(queue, consumer="zoe").json() == 1


@pytest.mark.parametrize(
    "options",
    [{"max_missed_heartbeats": -1}, {"max_missed_heartbeats": 1.5}, {"heartbeats_per_sweep": 0}],
    ids=str,
)
def test_bad_settings_of_heartbeats_are_refused(store: Store, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        store.consumer("orders", **options)
    assert store.consumers() == []


# -- dequeuing -------------------------------------------------------------------------------------------------------


def test_one_send_of_many_spreads_over_the_shards(store: Store) -> None:
    queue = store.queue("sharded", shards=4)
    queue.send_many(list(range(10)))
    consumers = [store.consumer("sharded", name=f"consumer {n}") for n in range(4)]
    firsts = [payloads(consumer.receive(limit=2)) for consumer in consumers]
    assert sorted(firsts) == [[0, 1], [3, 4], [5, 6], [8, 9]], (
        "a part for each shard, in which neighbours stay together"
    )


@pytest.mark.parametrize("options", [{}, {"ttl_seconds": 3_600}, {"priority": 2, "headers": {"a": "b"}}], ids=str)
def test_every_shard_gets_as_many_messages(store: Store, options: dict[str, Any]) -> None:
    queue = store.queue("sharded", shards=5)
    ids = queue.send_many([Outgoing(payload=number, **options) for number in range(20)])
    for n in range(5):
        store.consumer("sharded", name=f"consumer {n}")
    taken = [payloads(queue.receive(limit=4, consumer=f"consumer {n}")) for n in range(5)]
    assert sorted(taken) == [[n, n + 1, n + 2, n + 3] for n in range(0, 20, 4)]
    assert len(set(ids)) == 20
    assert [queue.find(message_id).json() for message_id in ids] == list(range(20))


def test_fewer_messages_than_shards_go_to_a_shard_each(store: Store) -> None:
    queue = store.queue("sharded", shards=7)
    queue.send_many(list(range(3)))
    assert sorted(payloads(take_all(queue))) == [0, 1, 2]


def test_messages_without_a_key_stay_in_order_in_an_ordered_queue(store: Store) -> None:
    queue = store.queue("sharded", shards=4, ordered=True)
    queue.send_many(list(range(10)))
    assert payloads(take_all(queue)) == list(range(10))


def test_two_consumers_never_get_the_same_message(store: Store) -> None:
    store.queue("orders").send_many(list(range(15)))
    first, second = store.consumer("orders", name="zoe"), store.consumer("orders", name="adam")
    assert payloads(first.receive()) == list(range(10))
    assert payloads(second.receive()) == list(range(10, 15)), "the batch has only what it was able to claim"
    assert [lease.consumer for lease in store.queue("orders").engine.leases("orders", "default")] == [
        *["zoe"] * 10,
        *["adam"] * 5,
    ]


# -- processing and guarantees ---------------------------------------------------------------------------------------


def test_success_after_the_deadline_counts_while_nobody_has_taken_the_message(
    queue: Queue, once: Queue, clock: Clock
) -> None:
    for source in (queue, once):
        message_id = source.send(1, deadline_at=clock.now + timedelta(seconds=17))
        holder = take(source)
        clock.advance(seconds=18)
        holder.ack()
        holder.ack()
        assert trail(source, message_id)[-1] == (Event.ACK, State.SUCCEEDED)
        assert source.receive() == []
        assert_trail_is_legal(source, message_id)
        assert_books_balance(source, sent=1)


def test_an_error_after_the_deadline_is_failed_at_most_once(once: Queue, clock: Clock) -> None:
    message_id = once.send(1, deadline_at=clock.now + timedelta(seconds=17))
    holder = take(once)
    clock.advance(seconds=18)
    holder.nak("too slow")
    [dead] = once.dead_letters()
    assert (dead.outcome, dead.reason, dead.attempts) == (State.FAILED, "too slow", 1)
    assert_trail_is_legal(once, message_id)
    assert_books_balance(once, sent=1)


def test_an_error_after_the_deadline_is_tried_again_at_least_once(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, deadline_at=clock.now + timedelta(seconds=17))
    holder = take(queue)
    clock.advance(seconds=18)
    holder.nak("too slow", delay_seconds=5)
    clock.advance(seconds=5)
    assert take(queue).attempt == 2
    assert_trail_is_legal(queue, message_id)


def test_an_error_before_the_deadline_is_queued_again(once: Queue, clock: Clock) -> None:
    once.send(1, deadline_at=clock.now + timedelta(seconds=17))
    take(once).nak("busy", delay_seconds=0)
    assert take(once).attempt == 2


def test_after_the_deadline_another_may_take_the_message_and_the_first_is_refused(queue: Queue, clock: Clock) -> None:
    message_id = queue.send(1, deadline_at=clock.now + timedelta(seconds=17))
    holder = take(queue)
    clock.advance(seconds=18)
    successor = take(queue)
    assert (successor.id, successor.attempt) == (message_id, 2)
    for settle in (holder.ack, holder.nak, holder.reject, lambda: holder.extend(9)):
        with pytest.raises(LeaseLost):
            settle()
    successor.ack()
    assert_trail_is_legal(queue, message_id)


def test_a_sweep_that_has_ended_the_message_is_final_at_most_once(once: Queue, store: Store, clock: Clock) -> None:
    message_id = once.send(1, deadline_at=clock.now + timedelta(seconds=17))
    holder = take(once)
    clock.advance(seconds=18)
    store.sweep()
    for settle in (holder.ack, holder.nak):
        with pytest.raises(LeaseLost):
            settle()
    assert [dead.outcome for dead in once.dead_letters()] == [State.EXPIRED]
    assert once.receive() == []
    assert_trail_is_legal(once, message_id)


def test_extending_does_not_move_a_lease_beyond_a_deadline_that_ended_it(queue: Queue, clock: Clock) -> None:
    deadline = clock.now + timedelta(seconds=17)
    queue.send(1, deadline_at=deadline)
    holder = take(queue)
    clock.advance(seconds=18)
    assert holder.extend(60) == deadline
    assert take(queue).attempt == 2, "it may be taken all the same"


def test_a_lease_that_ended_by_itself_is_lost_whatever_the_deadline(queue: Queue, clock: Clock) -> None:
    queue.send(1, deadline_at=clock.now + timedelta(seconds=50))
    holder = take(queue)
    clock.advance(seconds=51)
    with pytest.raises(LeaseLost):
        holder.ack()


def test_an_expired_message_is_not_settled_after_its_deadline(queue: Queue, store: Store, clock: Clock) -> None:
    message_id = queue.send(1, deadline_at=clock.now + timedelta(seconds=17), ttl_seconds=18)
    holder = take(queue)
    clock.advance(seconds=18)
    with pytest.raises(LeaseLost):
        holder.ack()
    store.sweep()
    assert trail(queue, message_id)[-1] == (Event.EXPIRE, State.EXPIRED)
