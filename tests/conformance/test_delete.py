"""Deleting a queue removes all its rows and frees its name; consumers and schedules that would create it again are
named."""

from __future__ import annotations

import pytest

from penstock import LeaseLost, NotFound, Outgoing, Queue, Refused, Store
from tests.conformance.assertions import take
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock


def fill(queue: Queue) -> None:
    """Rows in every table that refers to the queue."""
    queue.send_many([Outgoing(payload=number, priority=number % 2, ttl_seconds=5000) for number in range(6)])
    queue.send("delayed", delay_seconds=60)
    queue.send("addressed", address="here", id="7d444840-9dc0-11d1-b245-5ffdce74fad2")
    batch = queue.batch("nightly")
    batch.send_many([1, 2])
    batch.start()
    take(queue).ack()
    take(queue).reject("broken")
    take(queue).nak("again")
    queue.receive(1, group="another")
    queue.remove([queue.peek(1)[0].id])
    queue.redrive()
    queue.trim(upto=1)


def test_a_deleted_queue_leaves_nothing(store: Store, queue: Queue, open_store: Opener) -> None:
    other = store.queue("other")
    kept = other.send("kept")
    fill(queue)
    held = queue.stats("default").total
    assert held > 0
    assert queue.delete() > 0
    assert [info.name for info in store.queues()] == ["other"]
    assert queue.stats() == {}
    assert queue.peek() == []
    assert queue.batches() == []
    assert queue.dead_letters() == []
    assert queue.policy() == store.queue("never used").policy()
    with pytest.raises(NotFound):
        queue.find("7d444840-9dc0-11d1-b245-5ffdce74fad2")
    for _ in range(3):
        open_store().sweep()
    assert take(other).id == kept


def test_it_counts_its_messages(queue: Queue) -> None:
    queue.send_many([1, 2, 3])
    queue.send(4, delay_seconds=60)
    take(queue).ack()
    assert queue.count() == 4
    assert queue.delete() == 4
    assert queue.count() == 0


def test_the_name_is_free(store: Store, queue: Queue) -> None:
    fill(queue)
    queue.delete()
    assert store.queue("orders").policy().lease_seconds == 30
    sent = [queue.send(number) for number in range(3)]
    queue.send("again", address="here")
    assert [one.id for one in queue.receive(3)] == sent
    assert queue.stats("default").total == 4
    store.sweep()
    store.sweep()
    assert queue.stats("default").in_progress == 3


@pytest.mark.parametrize("group", ["default", "another"])
def test_leases_of_a_deleted_queue_settle_nothing(queue: Queue, group: str) -> None:
    queue.send(1)
    [delivery] = queue.receive(1, group=group)
    queue.delete()
    for settle in (delivery.ack, delivery.nak, lambda: delivery.extend(60)):
        with pytest.raises(LeaseLost):
            settle()
    # A send creates the queue and its primary group again, but no other group.
    queue.send(2)
    for settle in (delivery.ack, delivery.nak, lambda: delivery.extend(60)):
        with pytest.raises(LeaseLost):
            settle()
    assert queue.stats("default").available == 1


def test_an_unknown_queue_is_named(store: Store, queue: Queue) -> None:
    queue.send(1)
    with pytest.raises(NotFound, match="there is no queue 'order'; did you mean 'orders'"):
        store.queue("order").delete()


def test_a_schedule_that_sends_to_it_is_named(store: Store, queue: Queue) -> None:
    queue.send(1)
    for name in "abcd":
        store.schedule(name, "0 3 * * *", "orders", {})
    with pytest.raises(Refused, match="queue 'orders' was not deleted: schedule 'a', 'b', 'c' and 1 more would make"):
        queue.delete()
    assert len(queue.peek()) == 1
    for name in "abcd":
        store.unschedule(name)
    assert queue.delete() == 1


def test_a_registered_consumer_is_named(queue: Queue, clock: Clock) -> None:
    queue.send(1)
    consumer = queue.register("ann")
    with pytest.raises(Refused, match="queue 'orders' was not deleted: consumer 'ann' is registered: stop it first"):
        queue.delete()
    consumer.deregister()
    assert queue.delete() == 1


def test_others_see_the_deletion(store: Store, queue: Queue, open_store: Opener) -> None:
    queue.send(1)
    other = open_store().queue("orders")
    assert len(other.peek()) == 1
    queue.delete()
    assert other.peek() == []
    assert other.send(2)
    assert len(queue.peek()) == 1
