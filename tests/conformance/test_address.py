"""Addresses: at most one live message each, and a way to wait for its end."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import DuplicateAddress, MessageFailed, NotFound, Queue, State, Store, WaitTimeout
from tests.conformance.assertions import assert_books_balance, payloads, take, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import Clock

PATIENCE_SECONDS = 90


def test_a_second_message_to_a_live_address_is_refused_with_the_first_id(queue: Queue) -> None:
    first = queue.send(1, address="desk")
    with pytest.raises(DuplicateAddress, match="desk") as caught:
        queue.send(2, address="desk")
    assert caught.value.existing_id == first
    assert payloads(take_all(queue)) == [1]
    assert_books_balance(queue, sent=1)


def test_an_address_is_live_while_its_message_is_held(queue: Queue) -> None:
    first = queue.send(1, address="desk", delay_seconds=13)
    with pytest.raises(DuplicateAddress) as caught:
        queue.send(2, address="desk")
    assert caught.value.existing_id == first


def test_an_address_is_live_when_its_held_message_became_due(queue: Queue, store: Store, clock: Clock) -> None:
    first = queue.send(1, address="desk", delay_seconds=13)
    clock.advance(seconds=14)
    store.sweep()
    with pytest.raises(DuplicateAddress) as caught:
        queue.send(2, address="desk")
    assert caught.value.existing_id == first


def test_an_address_is_live_while_its_message_is_leased_or_waits_for_a_retry(queue: Queue) -> None:
    queue.send(1, address="desk")
    delivery = take(queue)
    with pytest.raises(DuplicateAddress):
        queue.send(2, address="desk")
    delivery.nak("busy")
    with pytest.raises(DuplicateAddress):
        queue.send(2, address="desk")


@pytest.mark.parametrize("verb", ["ack", "reject"])
def test_an_address_is_free_when_its_message_has_ended(queue: Queue, verb: str) -> None:
    queue.send(1, address="desk")
    getattr(take(queue), verb)()
    queue.send(2, address="desk")
    assert payloads(take_all(queue)) == [2]


def test_an_address_is_free_when_a_whole_receive_was_acked_at_once(queue: Queue) -> None:
    queue.send(1, address="desk")
    queue.send(2)
    queue.ack_many(take_all(queue))
    queue.send(3, address="desk")


def test_an_address_is_free_when_its_message_expired(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, address="desk", ttl_seconds=613)
    clock.advance(seconds=614)
    store.sweep()
    queue.send(2, address="desk")


def test_an_address_is_free_when_its_message_failed(store: Store) -> None:
    queue = store.queue("brittle", max_retries=0)
    queue.send(1, address="desk")
    take(queue).nak("broken")
    queue.send(2, address="desk")


def test_another_group_does_not_free_an_address(queue: Queue) -> None:
    queue.send(1, address="desk")
    take(queue, group="billing").ack()
    with pytest.raises(DuplicateAddress):
        queue.send(2, address="desk")


def test_addresses_belong_to_their_queue(store: Store) -> None:
    store.queue("first").send(1, address="desk")
    store.queue("second").send(2, address="desk")


def test_different_addresses_live_side_by_side(queue: Queue) -> None:
    for number in range(5):
        queue.send(number, address=f"desk {number}")
    assert payloads(take_all(queue)) == [0, 1, 2, 3, 4]


def test_a_redriven_message_makes_its_address_live_again(queue: Queue) -> None:
    first = queue.send(1, address="desk")
    take(queue).reject("no")
    queue.redrive(first)
    with pytest.raises(DuplicateAddress) as caught:
        queue.send(2, address="desk")
    assert caught.value.existing_id == first


# -- wait --------------------------------------------------------------------------------------------------------


def test_waiting_for_a_message_that_succeeded_returns_at_once(queue: Queue) -> None:
    queue.send(1, address="desk")
    take(queue).ack()
    assert queue.wait("desk", timeout_seconds=0) is State.SUCCEEDED


def test_waiting_for_a_message_that_was_rejected_raises_its_last_error(queue: Queue) -> None:
    queue.send(1, address="desk")
    take(queue).reject("no such order")
    with pytest.raises(MessageFailed, match="no such order") as caught:
        queue.wait("desk", timeout_seconds=0)
    assert (caught.value.outcome, caught.value.reason) == ("rejected", "no such order")


def test_waiting_for_a_message_that_expired_raises(queue: Queue, store: Store, clock: Clock) -> None:
    queue.send(1, address="desk", ttl_seconds=613)
    clock.advance(seconds=614)
    store.sweep()
    with pytest.raises(MessageFailed) as caught:
        queue.wait("desk", timeout_seconds=0)
    assert caught.value.outcome == "expired"


def test_waiting_for_a_live_message_runs_out_of_time(queue: Queue) -> None:
    message_id = queue.send(1, address="desk")
    with pytest.raises(WaitTimeout, match=message_id):
        queue.wait("desk", timeout_seconds=0.03)


def test_waiting_for_an_address_that_was_never_used_is_an_error(queue: Queue) -> None:
    with pytest.raises(NotFound, match="desk"):
        queue.wait("desk", timeout_seconds=0)


def test_the_outcome_of_an_earlier_message_is_never_returned(queue: Queue) -> None:
    queue.send(1, address="desk")
    take(queue).ack()
    queue.send(2, address="desk")
    with pytest.raises(WaitTimeout):
        queue.wait("desk", timeout_seconds=0.03)
    take(queue).reject("second")
    with pytest.raises(MessageFailed, match="second"):
        queue.wait("desk", timeout_seconds=0)


def test_an_ack_in_another_group_does_not_end_the_waiting(queue: Queue) -> None:
    queue.send(1, address="desk")
    take(queue, group="billing").ack()
    with pytest.raises(WaitTimeout):
        queue.wait("desk", timeout_seconds=0.03)


def test_a_waiting_thread_wakes_up_when_the_message_ends(live_queue: Queue, open_store: Opener) -> None:
    live_queue.send(1, address="desk")
    elsewhere = open_store(clock=None).queue("orders")
    begun = threading.Event()

    def wait() -> State:
        begun.set()
        return elsewhere.wait("desk", timeout_seconds=PATIENCE_SECONDS)

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait)
        assert begun.wait(PATIENCE_SECONDS)
        take(live_queue).ack()
        assert waiting.result(PATIENCE_SECONDS) is State.SUCCEEDED
