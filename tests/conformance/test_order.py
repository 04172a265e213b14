"""Order: better priority first; within a priority due retries, then new messages as their sends committed."""

from __future__ import annotations

import pytest

from penstock import Outgoing, Queue, Store
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clock import Clock


def test_messages_come_in_the_order_of_their_sends(queue: Queue) -> None:
    for number in range(6):
        queue.send(number)
    assert [take(queue).json() for _ in range(6)] == list(range(6))


def test_a_lower_priority_number_comes_first(queue: Queue) -> None:
    for priority in (7, 0, 1_000_000, 3, 1):
        queue.send(priority, priority=priority)
    assert payloads(take_all(queue)) == [0, 1, 3, 7, 1_000_000]


def test_messages_of_one_priority_keep_the_order_of_their_sends(queue: Queue) -> None:
    queue.send_many([Outgoing(payload=f"{priority}{n}", priority=priority) for n in range(3) for priority in (2, 1)])
    assert payloads(take_all(queue)) == ["10", "11", "12", "20", "21", "22"]


def test_one_receive_crosses_priorities(queue: Queue) -> None:
    queue.send_many([Outgoing(payload=n, priority=n % 3) for n in range(6)])
    assert payloads(queue.receive(limit=3)) == [0, 3, 1]
    assert payloads(queue.receive(limit=3)) == [4, 2, 5]


def test_a_better_message_that_was_sent_later_goes_first(queue: Queue) -> None:
    queue.send("worse", priority=4)
    queue.send("better", priority=2)
    assert take(queue).json() == "better"
    queue.send("best", priority=1)
    assert [take(queue).json(), take(queue).json()] == ["best", "worse"]


def test_a_better_message_goes_first_even_when_the_cursor_of_its_priority_was_idle(queue: Queue) -> None:
    queue.send_many([Outgoing(payload=n, priority=9) for n in range(4)])
    take(queue)
    queue.send("urgent")
    assert payloads(take_all(queue)) == ["urgent", 1, 2, 3]


def test_a_due_retry_goes_before_new_messages_of_its_priority(queue: Queue) -> None:
    queue.send_many(["retried", "second", "third"])
    take(queue).nak("again", delay_seconds=0)
    assert payloads(take_all(queue)) == ["retried", "second", "third"]


def test_a_due_retry_goes_after_new_messages_of_a_better_priority(queue: Queue) -> None:
    queue.send("retried", priority=3)
    take(queue).nak("again", delay_seconds=0)
    queue.send("better", priority=2)
    queue.send("same", priority=3)
    assert payloads(take_all(queue)) == ["better", "retried", "same"]


def test_due_retries_keep_the_order_of_their_sends(queue: Queue, clock: Clock) -> None:
    queue.send_many(["first", "second", "third"])
    first, second, third = take_all(queue)
    third.nak(delay_seconds=3)
    second.nak(delay_seconds=5)
    first.nak(delay_seconds=7)
    clock.advance(seconds=8)
    assert payloads(take_all(queue)) == ["first", "second", "third"]


def test_a_retry_that_is_not_due_does_not_hold_back_the_others(queue: Queue) -> None:
    queue.send_many(["retried", "second"])
    take(queue).nak(delay_seconds=60)
    assert payloads(take_all(queue)) == ["second"]


def test_what_a_lapsed_lease_gives_back_goes_before_new_messages(queue: Queue, clock: Clock) -> None:
    queue.send_many(["lapsed", "second"])
    take(queue)
    clock.advance(seconds=38)
    assert payloads(take_all(queue)) == ["lapsed", "second"]


def test_messages_that_become_due_together_keep_the_order_of_their_sends(queue: Queue, clock: Clock) -> None:
    queue.send_many([Outgoing(payload=n, delay_seconds=13) for n in range(5)])
    clock.advance(seconds=14)
    assert payloads(take_all(queue)) == [0, 1, 2, 3, 4]


def test_a_held_message_that_became_due_is_received_by_priority(queue: Queue, clock: Clock) -> None:
    queue.send("held and urgent", delay_seconds=13)
    queue.send("ready", priority=1)
    clock.advance(seconds=14)
    assert payloads(take_all(queue)) == ["held and urgent", "ready"]


def test_a_retry_goes_before_a_held_message_of_a_worse_priority_that_became_due(queue: Queue, clock: Clock) -> None:
    queue.send("retried", priority=1)
    take(queue).nak("again", delay_seconds=0)
    queue.send("held", priority=3, delay_seconds=5)
    clock.advance(seconds=5)
    assert take(queue).json() == "retried"
    assert take(queue).json() == "held"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_held_message_that_became_due_goes_before_all_that_is_worse(
    store: Store, clock: Clock, ordered: bool
) -> None:
    queue = store.queue("mixed", ordered=ordered, shards=16 if ordered else 1)
    queue.send("retried", priority=3, key="a")
    take(queue).nak("again", delay_seconds=0)
    queue.send("unread", priority=3, key="b")
    queue.send("held", priority=1, key="c", delay_seconds=5)
    clock.advance(seconds=5)
    assert [take(queue).json() for _ in range(3)] == ["held", "retried", "unread"]


def test_limits_smaller_than_the_retries_take_the_retries_first(queue: Queue) -> None:
    queue.send_many(list(range(6)))
    for delivery in queue.receive(limit=3):
        delivery.nak(delay_seconds=0)
    assert [payloads(queue.receive(limit=2)) for _ in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_many_priorities_and_retries_mixed_come_in_one_sorted_order(queue: Queue) -> None:
    queue.send_many([Outgoing(payload=[priority, 0], priority=priority) for priority in (5, 2, 8)])
    for delivery in take_all(queue):
        delivery.nak(delay_seconds=0)
    queue.send_many([Outgoing(payload=[priority, 1], priority=priority) for priority in (8, 5, 2, 1)])
    assert payloads(take_all(queue)) == [[1, 1], [2, 0], [2, 1], [5, 0], [5, 1], [8, 0], [8, 1]]
