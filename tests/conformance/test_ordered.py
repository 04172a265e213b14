"""Ordered queues: one key is processed strictly in order, retries included."""

from __future__ import annotations

from zlib import crc32

import pytest

from penstock import (
    Ack,
    Event,
    InvalidPolicy,
    LeaseLost,
    Nak,
    Outgoing,
    OutOfOrder,
    Queue,
    Refused,
    Reject,
    State,
    Store,
)
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, payloads, take, take_all, trail
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY

# Keys that fall on shards 0, 1 and 2 of three.
A, B, C = (next(key for key in "abcdefghijklmnop" if crc32(key.encode()) % 3 == shard) for shard in range(3))


@pytest.fixture
def lanes(store: Store) -> Queue:
    return store.queue("lanes", **{**POLICY, "ordered": True, "shards": 3})


@pytest.fixture
def line(store: Store) -> Queue:
    return store.queue("line", **{**POLICY, "ordered": True, "shards": 1})


def test_a_shard_with_an_open_lease_gives_nothing_more(line: Queue) -> None:
    line.send_many([1, 2])
    first = take(line)
    assert line.receive() == []
    first.ack()
    assert take(line).json() == 2


def test_other_shards_go_on_meanwhile(lanes: Queue) -> None:
    lanes.send_many([Outgoing(payload=f"{key}{n}", key=key) for n in (1, 2) for key in (A, B)])
    first = take(lanes)
    second = take(lanes)
    assert {first.key, second.key} == {A, B}
    assert (first.json()[1], second.json()[1]) == ("1", "1")
    assert lanes.receive() == []


def test_messages_of_one_key_always_fall_on_one_shard(lanes: Queue) -> None:
    lanes.send_many([Outgoing(payload=n, key=B) for n in range(10)])
    take(lanes)
    assert lanes.receive(limit=100) == []


def test_messages_without_a_key_are_in_order_too(lanes: Queue) -> None:
    lanes.send_many([1, 2, 3])
    for expected in (1, 2, 3):
        delivery = take(lanes)
        assert delivery.json() == expected
        delivery.ack()


def test_one_lease_may_hold_several_messages_of_a_shard_in_order(line: Queue) -> None:
    line.send_many([1, 2, 3])
    deliveries = take_all(line)
    assert payloads(deliveries) == [1, 2, 3]
    line.send(4)
    deliveries[0].ack()
    assert line.receive() == [], "the lease is open until all of it is settled"
    line.ack_many(deliveries[1:])
    assert take(line).json() == 4


def test_a_message_that_is_tried_again_blocks_its_shard(line: Queue, clock: Clock) -> None:
    line.send_many([1, 2])
    take(line).nak("busy", delay_seconds=19)
    assert line.receive() == []
    clock.advance(seconds=20)
    retried = take(line)
    assert (retried.json(), retried.attempt) == (1, 2)
    retried.ack()
    assert take(line).json() == 2


def test_a_nak_releases_the_later_messages_of_its_lease(line: Queue, clock: Clock) -> None:
    first, second, third = line.send_many([1, 2, 3])
    deliveries = take_all(line)
    deliveries[0].ack()
    deliveries[1].nak("busy", delay_seconds=0)
    with pytest.raises(LeaseLost):
        deliveries[2].ack()
    again = take_all(line)
    assert [(delivery.json(), delivery.attempt) for delivery in again] == [(2, 2), (3, 1)]
    assert (Event.RELEASE, State.READY) in trail(line, third)
    for message_id in (first, second, third):
        assert_trail_is_legal(line, message_id)
    line.ack_many(again)
    assert assert_books_balance(line, sent=3).done == 3


def test_a_nak_leaves_the_earlier_messages_of_its_lease_alone(line: Queue) -> None:
    line.send_many([1, 2, 3])
    first, second, _third = take_all(line)
    second.nak("busy", delay_seconds=0)
    assert line.receive() == [], "the first one is still being processed"
    first.ack()
    assert payloads(take_all(line)) == [2, 3]


def test_a_nak_in_one_shard_leaves_the_others_of_its_receive_alone(lanes: Queue) -> None:
    lanes.send_many([Outgoing(payload=f"{key}{n}", key=key) for n in (1, 2) for key in (A, B)])
    deliveries = {delivery.json(): delivery for delivery in take_all(lanes)}
    assert len(deliveries) == 4
    deliveries[f"{A}1"].nak("busy", delay_seconds=60)
    with pytest.raises(LeaseLost):
        deliveries[f"{A}2"].ack()
    deliveries[f"{B}1"].ack()
    deliveries[f"{B}2"].ack()


def test_a_rescheduled_message_blocks_its_shard_and_releases_the_later_ones(line: Queue, clock: Clock) -> None:
    line.send_many([1, 2])
    first, second = take_all(line)
    first.reschedule(71)
    with pytest.raises(LeaseLost):
        second.ack()
    assert line.receive() == []
    clock.advance(seconds=72)
    assert [(delivery.json(), delivery.attempt) for delivery in take_all(line)] == [(1, 1), (2, 1)]


def test_a_lapsed_lease_gives_its_messages_back_in_order(line: Queue, clock: Clock) -> None:
    line.send_many([1, 2, 3])
    take_all(line)
    clock.advance(seconds=38)
    assert payloads(take_all(line)) == [1, 2, 3]


def test_a_message_that_lapses_alone_releases_the_later_ones(line: Queue, clock: Clock) -> None:
    line.send_many([1, 2, 3])
    _first, second, third = take_all(line)
    second.extend(101)
    third.extend(103)
    clock.advance(seconds=38)
    again = take_all(line)
    assert payloads(again) == [1, 2, 3]
    for stale in (second, third):
        with pytest.raises(LeaseLost):
            stale.ack()


@pytest.mark.parametrize("verb", ["ack", "reject"])
def test_a_message_that_ended_does_not_block_its_shard(line: Queue, verb: str) -> None:
    line.send_many([1, 2])
    getattr(take(line), verb)()
    assert take(line).json() == 2


def test_a_message_without_retries_left_dies_and_lets_the_next_one_pass(line: Queue) -> None:
    line.send_many([1, 2])
    for _ in range(4):
        delivery = take(line)
        assert delivery.json() == 1
        delivery.nak("broken", delay_seconds=0)
    assert take(line).json() == 2
    assert line.dead_letters()[0].attempts == 4


def test_rejecting_one_message_does_not_release_the_later_ones(line: Queue) -> None:
    line.send_many([1, 2])
    first, second = take_all(line)
    first.reject("no")
    second.ack()
    assert_books_balance(line, sent=2)


def test_one_settle_with_a_nak_in_the_middle_loses_what_comes_after_it(line: Queue) -> None:
    line.send_many([1, 2, 3])
    first, second, third = take_all(line)
    results = line.settle([Ack(first), Nak(second, "busy", 0), Ack(third)])
    assert [result.ok for result in results] == [True, True, False]
    assert payloads(take_all(line)) == [2, 3]


def test_a_peek_does_not_show_what_an_open_lease_blocks(line: Queue) -> None:
    line.send_many([1, 2])
    holder = take(line)
    assert line.peek() == []
    holder.ack()
    assert payloads(line.peek()) == [2]


def test_a_consumer_that_leaves_gives_its_messages_back_in_order(line: Queue) -> None:
    line.send_many([1, 2, 3])
    consumer = line.register("zoe")
    take_all(line, consumer="zoe")
    assert consumer.deregister() == 3
    assert payloads(take_all(line)) == [1, 2, 3]


def test_a_message_that_expires_at_the_head_of_its_shard_lets_the_next_one_pass(line: Queue, clock: Clock) -> None:
    line.send(1, ttl_seconds=613)
    line.send(2)
    take(line).nak("busy", delay_seconds=1_009)
    clock.advance(seconds=614)
    line.store.sweep()
    assert payloads(take_all(line)) == [2]


def test_a_redriven_message_is_received_though_later_ones_were_finished(line: Queue) -> None:
    line.send_many([1, 2])
    take(line).reject("no")
    take(line).ack()
    assert line.redrive() == 1
    assert payloads(take_all(line)) == [1]


def test_at_most_once_nothing_in_order_is_handed_out_again_without_a_nak_of_its_own(store: Store) -> None:
    once = store.queue("once", **{**POLICY, "ordered": True, "delivery": "at_most_once"})
    once.send_many([1, 2, 3])
    first = take_all(once)[0]
    first.nak("busy", delay_seconds=0)
    again = take_all(once)
    assert again[0].json() == 1
    handed_out_twice = {delivery.json() for delivery in again} - {1}
    assert not handed_out_twice, "law 6: at_most_once is never redelivered without a nak"


def test_a_queue_that_became_at_most_once_hands_out_nothing_of_an_open_lease_again(store: Store, clock: Clock) -> None:
    line = store.queue("line", **{**POLICY, "ordered": True, "lease_seconds": 30})
    line.send_many([1, 2, 3])
    assert payloads(line.receive(limit=3)) == [1, 2, 3]
    store.queue("line", delivery="at_most_once")
    clock.advance(seconds=31)
    assert line.receive(limit=3) == []
    assert [letter.outcome for letter in line.dead_letters()] == [State.LEASE_EXPIRED] * 3
    assert_books_balance(line, 3)


def test_a_nak_in_a_queue_that_became_at_most_once_leaves_the_others_to_their_consumer(store: Store) -> None:
    line = store.queue("line", **{**POLICY, "ordered": True})
    line.send_many([1, 2])
    first, second = line.receive(limit=2)
    store.queue("line", delivery="at_most_once")
    first.nak("busy", delay_seconds=60)
    second.ack()
    assert line.stats("default").done == 1


def test_a_message_redriven_before_it_was_read_keeps_back_only_what_comes_after_it(
    store: Store, line: Queue, clock: Clock
) -> None:
    line.send_many([1, 2, Outgoing(payload=3, ttl_seconds=8), 4])
    clock.advance(seconds=9)
    store.sweep()
    assert line.redrive() == 1
    redriven = take(line)
    assert redriven.json() == 3
    redriven.nak("busy", delay_seconds=5)
    assert payloads(line.peek()) == [1, 2]
    for expected in (1, 2):
        delivery = take(line)
        assert delivery.json() == expected
        delivery.ack()
    assert line.peek() == []
    assert line.receive(limit=10) == []
    clock.advance(seconds=6)
    for expected in (3, 4):
        delivery = take(line)
        assert delivery.json() == expected
        delivery.ack()
    assert_books_balance(line, 4)


def test_the_number_of_shards_does_not_change_under_live_messages(lanes: Queue, store: Store) -> None:
    lanes.send(1, key=A)
    with pytest.raises(InvalidPolicy, match="shards"):
        store.queue("lanes", shards=2)
    assert lanes.policy().shards == 3
    take(lanes).ack()
    store.queue("lanes", shards=2)
    assert lanes.policy().shards == 2


def test_priorities_do_not_overtake_within_a_key_that_is_being_processed(lanes: Queue) -> None:
    lanes.send("usual", key=A, priority=5)
    holder = take(lanes)
    lanes.send("urgent", key=A, priority=0)
    assert lanes.receive() == []
    holder.ack()
    assert take(lanes).json() == "urgent"


def test_every_group_keeps_its_own_order(line: Queue) -> None:
    line.send_many([1, 2])
    take(line)
    mine = take(line, group="billing")
    assert mine.json() == 1
    assert line.receive(group="billing") == []
    mine.ack()
    assert take(line, group="billing").json() == 2


def test_every_key_is_processed_in_order_whatever_goes_wrong(lanes: Queue, clock: Clock) -> None:
    keys = "abcdefgh"
    lanes.send_many([Outgoing(payload=[key, n], key=key) for n in range(4) for key in keys])
    done: dict[str, list[int]] = {key: [] for key in keys}
    for turn in range(2_000):
        deliveries = lanes.receive(limit=1 + turn % 3)
        for place, delivery in enumerate(deliveries):
            key, number = delivery.json()
            try:
                if (turn + place) % 3 == 0 and delivery.attempt < 3:
                    delivery.nak("busy", delay_seconds=turn % 2)
                else:
                    delivery.ack()
                    done[key].append(number)
            except LeaseLost:
                continue
        clock.advance(seconds=1)
        if sum(map(len, done.values())) == 4 * len(keys):
            break
    assert done == {key: [0, 1, 2, 3] for key in keys}
    assert_books_balance(lanes, sent=4 * len(keys))


def test_nothing_ends_before_what_came_before_it_in_its_lease(line: Queue, clock: Clock) -> None:
    line.send_many([1, 2, 3])
    first, second, third = take_all(line)
    for settle in (second.ack, second.reject, third.ack):
        with pytest.raises(OutOfOrder):
            settle()
    with pytest.raises(OutOfOrder):
        line.ack_many([second, third])
    clock.advance(seconds=38)
    again = take_all(line)
    assert [(delivery.json(), delivery.attempt) for delivery in again] == [(1, 2), (2, 1), (3, 1)]
    for delivery in again:
        delivery.ack()
    assert assert_books_balance(line, sent=3).done == 3
    with pytest.raises(LeaseLost):
        first.ack()


def test_a_nak_that_would_end_a_message_waits_for_its_turn_too(line: Queue) -> None:
    line.store.queue("line", max_retries=0)
    line.send_many([1, 2])
    first, second = take_all(line)
    with pytest.raises(OutOfOrder):
        second.nak("broken")
    first.ack()
    second.nak("broken")
    assert line.stats(group="default").dead == 1


def test_one_call_may_settle_a_lease_in_any_order(line: Queue) -> None:
    line.send_many([1, 2, 3, 4])
    first, second, third, fourth = take_all(line)
    results = line.settle([Ack(fourth), Ack(second), Reject(third, "no"), Ack(first)])
    assert [result.state for result in results] == [State.SUCCEEDED, State.SUCCEEDED, State.REJECTED, State.SUCCEEDED]


def test_one_call_with_a_nak_loses_what_comes_after_it_in_any_order(line: Queue) -> None:
    line.send_many([1, 2, 3])
    first, second, third = take_all(line)
    results = line.settle([Ack(third), Nak(second, "busy", 0), Ack(first)])
    assert [type(result.error) for result in results] == [LeaseLost, type(None), type(None)]
    assert payloads(take_all(line)) == [2, 3]


def test_what_was_acked_in_order_may_be_acked_again(line: Queue) -> None:
    line.send_many([1, 2, 3])
    first, second, _third = take_all(line)
    first.ack()
    second.ack()
    second.ack()


def test_a_retry_and_what_follows_it_are_settled_in_order(line: Queue) -> None:
    line.send_many([1, 2])
    take(line).nak("busy", delay_seconds=0)
    retried, second = take_all(line)
    with pytest.raises(OutOfOrder):
        second.ack()
    with pytest.raises(OutOfOrder):
        line.ack_many([second])
    line.ack_many([retried, second])
    assert assert_books_balance(line, sent=2).done == 2


def test_redriven_members_of_a_cancelled_batch_are_settled_in_order(line: Queue) -> None:
    batch = line.batch("cancelled")
    batch.send_many([1, 2])
    batch.cancel()
    line.redrive(limit=10)
    first, second = take_all(line)
    assert (first.json(), second.json()) == (1, 2)
    with pytest.raises(OutOfOrder):
        second.ack()
    first.ack()
    second.ack()


def test_a_better_priority_comes_first_and_is_settled_first(line: Queue) -> None:
    line.send_many([Outgoing(payload="later", priority=1), Outgoing(payload="sooner", priority=0)])
    sooner, later = take_all(line)
    assert payloads([sooner, later]) == ["sooner", "later"]
    with pytest.raises(OutOfOrder):
        later.ack()
    sooner.ack()
    later.ack()


def test_shards_do_not_wait_for_each_other(lanes: Queue) -> None:
    lanes.send_many([Outgoing(payload=f"{key}{n}", key=key) for n in (1, 2) for key in (A, B)])
    deliveries = {delivery.json(): delivery for delivery in take_all(lanes)}
    deliveries[f"{B}1"].ack()
    deliveries[f"{B}2"].ack()
    lanes.ack_many([deliveries[f"{A}1"], deliveries[f"{A}2"]])


def test_a_lapsed_message_holds_back_the_later_ones_of_its_lease(line: Queue, clock: Clock) -> None:
    """It will be retried, although its ended lease was not reclaimed yet."""
    line.send_many([1, 2])
    _first, second = take_all(line)
    second.extend(101)
    clock.advance(seconds=38)
    with pytest.raises(Refused):
        second.ack()
    assert payloads(take_all(line)) == [1, 2]
