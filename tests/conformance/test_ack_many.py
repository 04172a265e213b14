"""ack_many: whole receives at once."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Event, InvalidInput, LeaseLost, Outgoing, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal, take, take_all
from tests.conformance.clock import Clock


def test_a_whole_receive_is_acked_and_counted(queue: Queue, clock: Clock) -> None:
    sent = queue.send_many(list(range(7)))
    assert queue.ack_many(take_all(queue)) == 7
    assert assert_books_balance(queue, sent=7).done == 7
    clock.advance(seconds=10_007)
    assert queue.receive() == []
    for message_id in sent:
        assert_trail_is_legal(queue, message_id)


def test_the_audit_tells_who_acked_each_message_and_when(queue: Queue, clock: Clock) -> None:
    sent = queue.send_many([1, 2])
    deliveries = take_all(queue, consumer="press 4")
    clock.advance(seconds=3)
    queue.ack_many(deliveries)
    for message_id in sent:
        entry = queue.audit(message_id)[-1]
        assert (entry.event, entry.state, entry.by, entry.at) == (Event.ACK, State.SUCCEEDED, "press 4", clock.now)
        assert (entry.group, entry.attempt) == ("default", 1)


def test_acking_nothing_counts_nothing(queue: Queue) -> None:
    assert queue.ack_many([]) == 0


def test_part_of_a_receive_is_acked_and_the_rest_stays_leased(queue: Queue, clock: Clock) -> None:
    queue.send_many(list(range(5)))
    deliveries = take_all(queue)
    assert queue.ack_many(deliveries[1:3]) == 2
    assert queue.stats("default").in_progress == 3
    clock.advance(seconds=38)
    assert [delivery.json() for delivery in take_all(queue)] == [0, 3, 4]


def test_deliveries_of_several_receives_and_groups_are_acked_together(queue: Queue) -> None:
    queue.send_many(list(range(6)))
    mine = [*queue.receive(limit=2), *queue.receive(limit=4)]
    theirs = queue.receive(limit=5, group="billing")
    assert queue.ack_many([*mine[::-1], *theirs]) == 11
    assert assert_books_balance(queue, sent=6).done == 6
    assert queue.stats("billing").done == 5


@pytest.mark.parametrize(
    ("count", "before", "acked", "left"),
    [
        (3, [], [0, 0, 2], [1]),
        (5, [3], [0, 4, 2], [1]),
        # As many as are leased, and with the same sum of positions.
        (5, [3, 4], [1, 1, 1], [0, 2]),
        (5, [0, 4], [0, 2, 4], [1, 3]),
    ],
)
def test_only_the_given_deliveries_are_acked(
    queue: Queue, clock: Clock, count: int, before: list[int], acked: list[int], left: list[int]
) -> None:
    """Given twice, in any order, or after others of their receive."""
    queue.send_many(list(range(count)))
    deliveries = take_all(queue)
    for number in before:
        deliveries[number].ack()
    assert queue.ack_many([deliveries[number] for number in acked]) == len(acked)
    clock.advance(seconds=38)
    assert [delivery.json() for delivery in take_all(queue)] == left


def test_acking_again_is_harmless(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    deliveries = take_all(queue)
    queue.ack_many(deliveries)
    assert queue.ack_many(deliveries) == 3
    deliveries[1].ack()
    assert assert_books_balance(queue, sent=3).done == 3


def test_a_receive_of_which_one_was_acked_before_is_acked_to_its_end(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    deliveries = take_all(queue)
    deliveries[1].ack()
    assert queue.ack_many(deliveries) == 3
    assert assert_books_balance(queue, sent=3).done == 3


def test_a_receive_over_several_priorities_and_shards_is_acked_whole_and_in_parts(store: Store) -> None:
    queue = store.queue("sharded", shards=3)
    queue.send_many([Outgoing(payload=n, priority=n % 4, key=f"key {n}") for n in range(40)])
    whole, part = queue.receive(limit=20), queue.receive(limit=20)
    assert queue.ack_many(whole) == 20
    assert queue.ack_many(part[3:17:2]) == 7
    stats = assert_books_balance(queue, sent=40)
    assert (stats.done, stats.in_progress) == (27, 13)
    assert queue.ack_many(part) == 20
    assert assert_books_balance(queue, sent=40).done == 40


def test_the_same_delivery_twice_is_acked_once(queue: Queue) -> None:
    queue.send_many([1, 2])
    first, second = take_all(queue)
    queue.ack_many([first, second, first])
    assert assert_books_balance(queue, sent=2).done == 2


def test_lost_leases_are_named_after_the_others_were_acked(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2, 3])
    lost = take(queue)
    clock.advance(seconds=30)
    held = queue.receive(limit=2)
    clock.advance(seconds=10)
    with pytest.raises(LeaseLost, match=lost.id) as caught:
        queue.ack_many([lost, *held])
    assert held[0].id not in str(caught.value)
    assert queue.stats("default").done == 2


def test_one_naked_message_of_a_receive_is_named_and_the_rest_is_acked(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    deliveries = take_all(queue)
    deliveries[1].nak("busy")
    with pytest.raises(LeaseLost, match=deliveries[1].id):
        queue.ack_many(deliveries)
    stats = assert_books_balance(queue, sent=3)
    assert (stats.done, stats.held) == (2, 1)


def test_a_whole_receive_whose_lease_has_ended_is_lost(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2])
    deliveries = take_all(queue)
    clock.advance(seconds=38)
    with pytest.raises(LeaseLost):
        queue.ack_many(deliveries)
    assert [delivery.attempt for delivery in take_all(queue)] == [2, 2]


def test_an_extended_delivery_is_acked_with_the_rest(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2, 3])
    deliveries = take_all(queue)
    deliveries[1].extend(53)
    assert queue.ack_many(deliveries) == 3
    assert assert_books_balance(queue, sent=3).done == 3


def test_an_extended_delivery_is_acked_when_the_rest_has_lapsed(queue: Queue, clock: Clock) -> None:
    queue.send_many([1, 2, 3])
    deliveries = take_all(queue)
    deliveries[1].extend(53)
    clock.advance(seconds=38)
    with pytest.raises(LeaseLost):
        queue.ack_many(deliveries)
    assert queue.stats("default").done == 1


def test_retries_are_acked_with_new_messages(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    take(queue).nak("busy", delay_seconds=0)
    deliveries = take_all(queue)
    assert [delivery.attempt for delivery in deliveries] == [2, 1, 1]
    assert queue.ack_many(deliveries) == 3
    assert assert_books_balance(queue, sent=3).done == 3


def test_a_delivery_of_another_queue_is_refused(queue: Queue, store: Store) -> None:
    queue.send(1)
    delivery = take(queue)
    with pytest.raises(InvalidInput, match="orders"):
        store.queue("other").ack_many([delivery])
    assert queue.stats("default").in_progress == 1


@pytest.mark.parametrize("wrong", [7, None, ["019a8c3e-7b2d-7abc-8def-00000000002a"]])
def test_what_is_no_delivery_is_refused(queue: Queue, wrong: Any) -> None:
    with pytest.raises(InvalidInput, match="a list of deliveries"):
        queue.ack_many(wrong)


def test_one_delivery_without_a_list_is_refused(queue: Queue) -> None:
    queue.send(1)
    one: Any = take(queue)
    with pytest.raises(InvalidInput, match=r"a list of deliveries as receive gives them, not (Async)?Delivery"):
        queue.ack_many(one)
    assert queue.stats("default").in_progress == 1


def test_deliveries_of_a_generator_are_acked(queue: Queue) -> None:
    queue.send_many([1, 2])
    several: Any = (delivery for delivery in take_all(queue))
    assert queue.ack_many(several) == 2
