"""primary_group: the group of addresses, batches and unread expiries; None for no such group."""

from __future__ import annotations

import pytest

from penstock import DuplicateAddress, InvalidInput, Queue, State, Store
from tests.conformance.assertions import assert_books_balance, nonzero, payloads, take, take_all
from tests.conformance.clock import Clock
from tests.conformance.conftest import POLICY


@pytest.fixture
def billed(store: Store) -> Queue:
    return store.queue("billed", **{**POLICY, "primary_group": "billing"})


@pytest.fixture
def groupless(store: Store) -> Queue:
    return store.queue("groupless", **{**POLICY, "primary_group": None})


def test_a_receive_without_a_group_is_one_of_the_primary_group(billed: Queue) -> None:
    billed.send(1)
    assert billed.groups() == ["billing"]
    assert take(billed).group == "billing"


def test_an_unread_message_dies_in_the_primary_group(billed: Queue, store: Store, clock: Clock) -> None:
    billed.send(1, ttl_seconds=613)
    billed.receive(group="default", limit=1)[0].ack()
    clock.advance(seconds=614)
    store.sweep()
    assert [(dead.group, dead.outcome) for dead in billed.dead_letters()] == [("billing", State.EXPIRED)]


def test_an_address_is_free_when_the_primary_group_has_finished(billed: Queue) -> None:
    billed.send(1, address="desk")
    take(billed, group="default").ack()
    with pytest.raises(DuplicateAddress):
        billed.send(2, address="desk")
    take(billed, group="billing").ack()
    billed.send(3, address="desk")


def test_a_batch_ends_when_the_primary_group_has_finished(billed: Queue) -> None:
    batch = billed.batch("nightly")
    batch.send(1)
    batch.set_end("end")
    batch.start()
    take(billed, group="default").ack()
    assert batch.state == "running"
    take(billed, group="billing").ack()
    assert batch.state == "finished"
    assert payloads(take_all(billed, group="billing")) == ["end"]


def test_without_a_primary_group_there_is_no_group_before_the_first_receive(groupless: Queue) -> None:
    groupless.send(1)
    assert groupless.groups() == []
    assert groupless.stats() == {}
    assert take(groupless).group == "default"
    assert groupless.groups() == ["default"]


def test_without_a_primary_group_every_group_reads_as_elsewhere(groupless: Queue) -> None:
    groupless.send(1)
    take(groupless, group="first").ack()
    take(groupless, group="second").reject("no")
    assert groupless.stats("first").done == 1
    assert [dead.group for dead in groupless.dead_letters()] == ["second"]


def test_without_a_primary_group_an_unread_message_just_expires(groupless: Queue, store: Store, clock: Clock) -> None:
    groupless.receive(group="first")
    groupless.send(1, ttl_seconds=613)
    clock.advance(seconds=614)
    store.sweep()
    assert groupless.receive(group="first") == []
    store.sweep()
    assert groupless.dead_letters() == []
    assert nonzero(assert_books_balance(groupless, sent=1, group="first").outcomes) == {"expired": 1}


def test_without_a_primary_group_an_address_is_refused(groupless: Queue) -> None:
    with pytest.raises(InvalidInput, match=r"primary.group"):
        groupless.send(1, address="desk")
    assert groupless.peek() == []


def test_without_a_primary_group_a_batch_is_refused(groupless: Queue) -> None:
    with pytest.raises(InvalidInput, match=r"primary.group"):
        groupless.batch("nightly").send(1)
    assert groupless.peek() == []


def test_without_a_primary_group_a_delayed_message_comes_to_every_group(groupless: Queue, clock: Clock) -> None:
    message_id = groupless.send(1, delay_seconds=13)
    assert groupless.receive() == []
    clock.advance(seconds=14)
    assert take(groupless).id == message_id
    assert take(groupless, group="second").id == message_id


def test_a_former_primary_group_that_nobody_ever_read_is_gone(queue: Queue, store: Store) -> None:
    queue.send_many([1, 2])
    take(queue, group="billing").ack()
    assert queue.groups() == ["billing", "default"]
    store.queue(queue.name, primary_group="billing")
    assert queue.groups() == ["billing"]
    assert payloads(take_all(queue, group="default")) == [1, 2], "who comes later reads from the start"


def test_a_former_primary_group_that_was_read_stays(queue: Queue, store: Store) -> None:
    queue.send_many([1, 2])
    take(queue).ack()
    store.queue(queue.name, primary_group="billing")
    assert queue.groups() == ["default"]
    assert queue.stats("default").done == 1


def test_a_former_primary_group_with_a_dead_letter_stays(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, ttl_seconds=10)
    clock.advance(seconds=11)
    store.sweep()
    store.queue(queue.name, primary_group=None)
    assert queue.stats("default").dead == 1
