"""Many threads and several open stores: law 3, at most one live lease per message."""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from penstock import DuplicateAddress, Queue
from tests.conformance.assertions import assert_books_balance, take_all
from tests.conformance.clients import Opener
from tests.conformance.clock import START, Clock

THREADS = 4


def test_threads_that_receive_at_once_share_the_messages_without_overlap(live_queue: Queue, open_store: Opener) -> None:
    sent = live_queue.send_many(list(range(400)))
    queues = [live_queue, *(open_store(clock=None).queue("orders") for _ in range(THREADS - 1))]

    def drain(queue: Queue) -> list[str]:
        taken: list[str] = []
        while deliveries := queue.receive(limit=7):
            queue.ack_many(deliveries)
            taken += [delivery.id for delivery in deliveries]
        return taken

    with ThreadPoolExecutor(THREADS) as pool:
        taken = [message_id for part in pool.map(drain, queues) for message_id in part]
    assert Counter(taken) == Counter(sent)
    assert assert_books_balance(live_queue, sent=400).done == 400


def test_threads_that_share_one_store_send_without_losing_anything(live_queue: Queue) -> None:
    def send(worker: int) -> list[str]:
        return [live_queue.send([worker, number]) for number in range(25)]

    with ThreadPoolExecutor(THREADS) as pool:
        sent = [message_id for part in pool.map(send, range(THREADS)) for message_id in part]
    received = take_all(live_queue)
    assert Counter(delivery.id for delivery in received) == Counter(sent)
    for worker in range(THREADS):
        own = [number for who, number in (delivery.json() for delivery in received) if who == worker]
        assert own == sorted(own), "the sends of one thread keep their order"


def test_of_many_sends_to_one_address_at_once_exactly_one_gets_through(live_queue: Queue, open_store: Opener) -> None:
    queues = [live_queue, *(open_store(clock=None).queue("orders") for _ in range(THREADS - 1))]

    def send(queue: Queue) -> str | None:
        try:
            return queue.send(1, address="desk")
        except DuplicateAddress:
            return None

    with ThreadPoolExecutor(THREADS) as pool:
        got_through = [message_id for message_id in pool.map(send, queues * 3) if message_id]
    assert [delivery.id for delivery in take_all(live_queue)] == got_through
    assert len(got_through) == 1


def test_of_many_sends_of_one_id_at_once_exactly_one_message_comes_out(live_queue: Queue) -> None:
    chosen = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
    with ThreadPoolExecutor(THREADS) as pool:
        sent = list(pool.map(lambda number: live_queue.send(number, id=chosen), range(12)))
    assert set(sent) == {chosen}
    assert len(take_all(live_queue)) == 1


def test_a_batch_whose_members_are_acked_at_once_ends_once(live_queue: Queue) -> None:
    batch = live_queue.batch("nightly")
    batch.send_many(list(range(24)))
    batch.set_end("end")
    batch.start()
    deliveries = take_all(live_queue)
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda delivery: delivery.ack(), deliveries))
    assert [delivery.json() for delivery in take_all(live_queue)] == ["end"]


def test_one_tick_is_fired_once_when_many_sweep_at_once(open_store: Opener, clock: Clock) -> None:
    stores = [open_store() for _ in range(THREADS)]
    stores[0].schedule("report", "*/20 * * * *", "reports", 1)
    clock.move_to(START.replace(minute=20, second=5))
    with ThreadPoolExecutor(THREADS) as pool:
        fired = sum(report.fired for report in pool.map(lambda store: store.sweep(), stores * 3))
    assert fired == 1
    assert len(take_all(stores[0].queue("reports"))) == 1
