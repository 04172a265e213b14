"""wait_seconds: a receive that waits for the first message, in real time.

Nothing here sleeps: a waiter must come back long before its own patience ends, and far sooner than a test times out.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from penstock import Delivery, Outgoing, Queue
from tests.conformance.assertions import payloads, take
from tests.conformance.clients import Opener

PATIENCE_SECONDS = 90

Waiter = Callable[..., Future[list[Delivery]]]


@pytest.fixture
def waiting() -> Iterator[Waiter]:
    """Start a waiting receive in a thread; returns just before the receive begins."""
    with ThreadPoolExecutor(8) as pool:

        def start(queue: Queue, **options: Any) -> Future[list[Delivery]]:
            begun = threading.Event()

            def receive() -> list[Delivery]:
                begun.set()
                return queue.receive(wait_seconds=PATIENCE_SECONDS, **options)

            future = pool.submit(receive)
            assert begun.wait(PATIENCE_SECONDS)
            return future

        yield start


def promptly(future: Future[list[Delivery]]) -> list[Delivery]:
    """The result, which must come in well under the time the waiter was ready to wait."""
    return future.result(PATIENCE_SECONDS / 3)


def test_a_send_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter) -> None:
    waiter = waiting(live_queue)
    live_queue.send("wake up")
    assert payloads(promptly(waiter)) == ["wake up"]


def test_a_send_through_another_opening_wakes_a_waiting_receive(
    live_queue: Queue, waiting: Waiter, open_store: Opener
) -> None:
    waiter = waiting(live_queue)
    open_store(clock=None).queue("orders").send("wake up")
    assert payloads(promptly(waiter)) == ["wake up"]


def test_a_send_from_another_process_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter, url: str) -> None:
    script = "import sys, penstock; penstock.connect(sys.argv[1]).queue('orders').send('from afar')"
    waiter = waiting(live_queue)
    subprocess.run([sys.executable, "-c", script, url], check=True, timeout=PATIENCE_SECONDS)
    assert payloads(promptly(waiter)) == ["from afar"]


def test_a_receive_in_another_process_is_woken(live_queue: Queue, url: str) -> None:
    script = (
        "import sys, penstock\n"
        "queue = penstock.connect(sys.argv[1]).queue('orders')\n"
        "print('waiting', flush=True)\n"
        f"[delivery] = queue.receive(wait_seconds={PATIENCE_SECONDS})\n"
        "delivery.ack()\n"
        "print(delivery.json(), flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script, url], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "waiting\n"
        live_queue.send("from afar")
        assert child.stdout.readline() == "from afar\n"
        assert child.wait(PATIENCE_SECONDS) == 0
    assert live_queue.stats("default").done == 1


def test_a_message_that_becomes_due_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter) -> None:
    message_id = live_queue.send(1, delay_seconds=0.2)
    [delivery] = promptly(waiting(live_queue))
    assert delivery.id == message_id
    assert time.time() >= delivery.created_at.timestamp() + 0.2


def test_a_retry_that_becomes_due_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter) -> None:
    live_queue.send(1)
    take(live_queue).nak("busy", delay_seconds=0.2)
    [delivery] = promptly(waiting(live_queue))
    assert delivery.attempt == 2


def test_a_lease_that_lapses_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter) -> None:
    live_queue.send(1)
    take(live_queue, lease_seconds=0.2)
    [delivery] = promptly(waiting(live_queue))
    assert delivery.attempt == 2


def test_a_nak_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter) -> None:
    live_queue.send(1)
    delivery = take(live_queue)
    waiter = waiting(live_queue)
    delivery.nak("busy", delay_seconds=0)
    assert [again.attempt for again in promptly(waiter)] == [2]


def test_a_resumed_queue_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter) -> None:
    live_queue.pause()
    live_queue.send(1)
    waiter = waiting(live_queue)
    live_queue.resume()
    assert payloads(promptly(waiter)) == [1]


def test_a_started_batch_wakes_a_waiting_receive(live_queue: Queue, waiting: Waiter) -> None:
    batch = live_queue.batch("nightly")
    batch.send(1)
    waiter = waiting(live_queue)
    batch.start()
    assert payloads(promptly(waiter)) == [1]


def test_the_end_of_an_ordered_lease_wakes_a_waiting_receive(open_store: Opener, waiting: Waiter) -> None:
    queue = open_store(clock=None).queue("line", ordered=True)
    queue.send_many([1, 2])
    first = take(queue)
    waiter = waiting(queue)
    first.ack()
    assert payloads(promptly(waiter)) == [2]


def test_a_waiting_receive_returns_with_what_there_is_and_does_not_wait_for_more(live_queue: Queue) -> None:
    live_queue.send_many([1, 2])
    began = time.monotonic()
    assert payloads(live_queue.receive(limit=10, wait_seconds=PATIENCE_SECONDS)) == [1, 2]
    assert time.monotonic() - began < PATIENCE_SECONDS / 3


def test_a_waiting_receive_gives_up_when_its_time_is_over_and_not_before(live_queue: Queue) -> None:
    began = time.monotonic()
    assert live_queue.receive(wait_seconds=0.2) == []
    assert 0.2 <= time.monotonic() - began < PATIENCE_SECONDS / 3


def test_a_message_of_another_queue_does_not_end_the_waiting(live_queue: Queue, waiting: Waiter) -> None:
    waiter = waiting(live_queue)
    live_queue.store.queue("other").send("not for you")
    live_queue.send("for you")
    assert payloads(promptly(waiter)) == ["for you"]


def test_a_message_that_was_leased_by_another_group_still_wakes(live_queue: Queue, waiting: Waiter) -> None:
    first, second = waiting(live_queue), waiting(live_queue, group="billing")
    live_queue.send(1)
    assert payloads(promptly(first)) == payloads(promptly(second)) == [1]


def test_several_waiters_share_several_messages_and_nobody_gets_one_twice(live_queue: Queue, waiting: Waiter) -> None:
    waiters = [waiting(live_queue) for _ in range(4)]
    live_queue.send_many([Outgoing(payload=number) for number in range(4)])
    taken = [delivery.json() for waiter in waiters for delivery in promptly(waiter)]
    assert sorted(taken) == [0, 1, 2, 3]


def block_a_shard(queue: Queue) -> None:
    queue.store.queue(queue.name, ordered=True)
    queue.send_many([1, 2])
    take(queue, lease_seconds=1_009)


def wait_for_a_retry(queue: Queue) -> None:
    queue.send(1)
    take(queue).nak("busy", delay_seconds=1_009)


def pause(queue: Queue) -> None:
    queue.send(1)
    queue.pause()


def cancel_a_batch(queue: Queue) -> None:
    queue.batch("nightly").send(1)
    queue.batch("nightly").start()
    queue.batch("nightly").cancel()


def expire(queue: Queue) -> None:
    queue.send(1, ttl_seconds=0.000_001)


@pytest.mark.parametrize("hinder", [block_a_shard, wait_for_a_retry, pause, cancel_a_batch, expire])
def test_a_receive_that_waits_for_what_it_cannot_have_does_not_spin(
    live_queue: Queue, hinder: Callable[[Queue], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    hinder(live_queue)
    engine, tries = live_queue.engine, []
    receive = engine.receive

    def counted(*args: Any) -> Any:
        tries.append(args)
        return receive(*args)

    monkeypatch.setattr(engine, "receive", counted)
    assert live_queue.receive(wait_seconds=0.3) == []
    assert 1 <= len(tries) < 10
