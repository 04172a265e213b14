"""Waiting for a batch: until it is finished or cancelled, and not for another batch of its name."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock import BatchInfo, NotFound, Queue, WaitTimeout
from tests.conformance.assertions import take
from tests.conformance.clients import Opener

PATIENCE_SECONDS = 90


def test_wait_returns_a_batch_that_has_ended(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send(1)
    batch.start()
    take(queue).reject("no such order")
    assert batch.wait(timeout_seconds=0).state == "finished"
    cancelled = queue.batch("weekly")
    cancelled.send(1)
    cancelled.cancel()
    assert cancelled.wait(timeout_seconds=0).state == "cancelled"


def test_wait_times_out_while_members_remain(queue: Queue) -> None:
    batch = queue.batch("nightly")
    batch.send_many([1, 2])
    with pytest.raises(WaitTimeout, match="it is open, and 2 of 2 messages remain"):
        batch.wait(timeout_seconds=0.03)
    batch.start()
    take(queue).ack()
    with pytest.raises(WaitTimeout, match=r"batch 'nightly' of queue 'orders'.*it is running, and 1 of 2"):
        batch.wait(timeout_seconds=0.03)


def test_wait_for_an_unknown_batch_is_an_error(queue: Queue) -> None:
    with pytest.raises(NotFound, match="nightly"):
        queue.batch("nightly").wait(timeout_seconds=0)


def test_wait_does_not_return_an_earlier_batch_of_the_name(queue: Queue) -> None:
    first = queue.batch("nightly")
    first.start()
    second = queue.batch("nightly")
    second.send(1)
    with pytest.raises(WaitTimeout):
        second.wait(timeout_seconds=0.03)
    assert first.wait(timeout_seconds=0) == BatchInfo("nightly", "orders", "finished", 0, 0, 0)


def test_wait_ends_when_the_last_member_is_settled(live_queue: Queue, open_store: Opener) -> None:
    batch = live_queue.batch("nightly")
    batch.send(1)
    batch.start()
    elsewhere = open_store(clock=None).queue("orders")
    begun = threading.Event()

    def wait() -> str:
        begun.set()
        return elsewhere.batch("nightly").wait(timeout_seconds=PATIENCE_SECONDS).state

    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(wait)
        assert begun.wait(PATIENCE_SECONDS)
        take(live_queue).ack()
        assert waiting.result(PATIENCE_SECONDS) == "finished"
