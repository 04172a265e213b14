"""clear: only the policy of the queue is left."""

from __future__ import annotations

import pytest

from penstock import LeaseLost, NotFound, Queue, Store
from tests.conformance.assertions import assert_books_balance, payloads, take, take_all


def test_messages_and_groups_are_gone_and_the_policy_stays(queue: Queue, store: Store) -> None:
    store.queue(queue.name, max_retries=3)
    sent = queue.send("ready")
    queue.send("held", delay_seconds=60)
    take(queue, group="billing").reject("no")
    assert queue.engine.clear(queue.name)
    assert queue.engine.groups(queue.name) == []
    assert queue.engine.unread(queue.name) == 0
    assert queue.policy().max_retries == 3
    with pytest.raises(NotFound):
        queue.find(sent)


def test_a_cleared_queue_is_used_as_a_new_one(queue: Queue, store: Store) -> None:
    queue.send_many([1, 2])
    take(queue).ack()
    queue.engine.clear(queue.name)
    queue.send_many([3, 4])
    assert queue.groups() == ["default"]
    take(queue).ack()
    assert_books_balance(queue, sent=2)
    assert payloads(take_all(queue, group="billing")) == [3, 4]
    assert payloads(take_all(queue)) == [4]
    assert [check for check in store.engine.doctor() if check.level == "error"] == []


def test_leases_are_lost(queue: Queue) -> None:
    queue.send(1)
    delivery = take(queue)
    queue.engine.clear(queue.name)
    with pytest.raises(LeaseLost):
        delivery.ack()


def test_it_says_whether_there_was_anything(queue: Queue, store: Store) -> None:
    assert not queue.engine.clear("unknown")
    queue.send(1)
    assert queue.engine.clear(queue.name)
    assert not queue.engine.clear(queue.name)
    queue.receive(group="billing")
    assert queue.engine.clear(queue.name)


def test_registered_consumers_go_and_other_queues_stay(queue: Queue, store: Store) -> None:
    other = store.queue("other")
    other.send(1)
    kept = take(other)
    queue.send(2)
    queue.engine.register(queue.name, "default", "c1", 10)
    queue.engine.register("other", "default", "c1", 10)
    queue.engine.clear(queue.name)
    assert [one.queue for one in store.consumers()] == ["other"]
    kept.ack()
