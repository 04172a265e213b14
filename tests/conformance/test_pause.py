"""pause and resume: receives return nothing, everything else works."""

from __future__ import annotations

from penstock import Queue, Store
from tests.conformance.assertions import payloads, take, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock


def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(queue: Queue) -> None:
    queue.send(1)
    queue.pause()
    assert queue.receive() == []
    assert queue.receive(group="billing") == []
    queue.resume()
    assert payloads(take_all(queue)) == [1]


def test_sends_and_settlements_go_on_while_paused(queue: Queue) -> None:
    queue.send_many([1, 2])
    first, second = take_all(queue)
    queue.pause()
    queue.send(3)
    first.ack()
    second.nak("busy", delay_seconds=0)
    assert queue.receive() == []
    queue.resume()
    assert payloads(take_all(queue)) == [2, 3]


def test_a_lease_can_be_extended_while_paused(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    delivery = take(queue)
    queue.pause()
    delivery.extend(101)
    clock.advance(seconds=100)
    delivery.ack()


def test_pausing_twice_is_pausing_once(queue: Queue) -> None:
    queue.send(1)
    queue.pause()
    queue.pause()
    queue.resume()
    assert payloads(take_all(queue)) == [1]


def test_a_pause_is_seen_in_the_policy_and_through_every_opening(queue: Queue, open_store: Opener) -> None:
    queue.send(1)
    queue.pause()
    elsewhere = open_store().queue("orders")
    assert elsewhere.policy().paused is True
    assert elsewhere.receive() == []
    elsewhere.resume()
    assert queue.policy().paused is False
    assert payloads(take_all(queue)) == [1]


def test_a_pause_keeps_the_rest_of_the_policy(queue: Queue) -> None:
    before = queue.policy()
    queue.pause()
    queue.resume()
    assert queue.policy() == before


def test_a_queue_may_be_declared_paused(store: Store) -> None:
    queue = store.queue("later", paused=True)
    queue.send(1)
    assert queue.receive() == []
    store.queue("later", paused=False)
    assert payloads(take_all(queue)) == [1]


def test_other_queues_are_not_paused(queue: Queue, store: Store) -> None:
    queue.pause()
    other = store.queue("other")
    other.send(1)
    assert payloads(take_all(other)) == [1]
