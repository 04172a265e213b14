"""Concurrency, priorities, and the slots of handlers that wait."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import penstock
from penstock import InvalidInput
from penstock.workers.demand import Supply
from penstock.workers.priority_slots import Offer, PrioritySlots
from tests.workers import recursive_handler
from tests.workers.conftest import await_until


class Crowd:
    """Handlers that block until released, and count themselves."""

    def __init__(self) -> None:
        self.running: list[Any] = []
        self.most = 0
        self.done = 0
        self._lock = threading.Lock()
        self._go = threading.Event()

    def handle(self, delivery: penstock.Delivery) -> None:
        with self._lock:
            self.running.append(delivery.payload)
            self.most = max(self.most, len(self.running))
        self._go.wait(60)
        with self._lock:
            self.running.remove(delivery.payload)
            self.done += 1

    async def handle_async(self, delivery: penstock.AsyncDelivery) -> None:
        self.running.append(delivery.payload)
        self.most = max(self.most, len(self.running))
        while not self._go.is_set():
            await asyncio.sleep(0.005)
        self.running.remove(delivery.payload)
        self.done += 1

    def let_go(self) -> None:
        self._go.set()


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_handlers_run_up_to_the_concurrency(store: penstock.Store, start: Any, kind: str) -> None:
    crowd = Crowd()
    store.queue("work").send_many([bytes([number]) for number in range(20)])
    app = penstock.App()
    app.add("work", crowd.handle if kind == "thread" else crowd.handle_async, concurrency=3)
    start(app, concurrency=7)
    await_until(lambda: len(crowd.running) == 3)
    crowd.let_go()
    await_until(lambda: crowd.done == 20)
    assert crowd.most == 3


def test_queues_do_not_take_each_others_slots(store: penstock.Store, start: Any) -> None:
    slow, quick = Crowd(), []
    store.queue("slow").send_many([b"1", b"2", b"3"])
    start({"slow": slow.handle, "quick": lambda delivery: quick.append(delivery.id)}, concurrency=2)
    await_until(lambda: len(slow.running) == 2)
    store.queue("quick").send_many([b"1", b"2", b"3", b"4"])
    await_until(lambda: len(quick) == 4)
    slow.let_go()


def test_slow_handlers_hold_no_more_than_they_run(store: penstock.Store, start: Any) -> None:
    """Other workers could run messages that are buffered in one."""
    crowd = Crowd()
    store.queue("work").send_many([bytes([number]) for number in range(20)])
    start({"work": crowd.handle}, concurrency=2)
    await_until(lambda: len(crowd.running) == 2)
    assert store.queue("work").stats("default").in_progress == 2
    crowd.let_go()


def test_prefetched_messages_are_bounded_by_the_slots(store: penstock.Store, start: Any) -> None:
    crowd = Crowd()
    store.queue("work").send_many([bytes([number]) for number in range(20)])
    app = penstock.App()
    app.add("work", crowd.handle, concurrency=2, prefetch=3)
    start(app)
    await_until(lambda: store.queue("work").stats("default").in_progress == 2 + 2 * 3)
    crowd.let_go()
    await_until(lambda: crowd.done == 20)


def test_at_most_once_messages_are_not_prefetched(store: penstock.Store, start: Any) -> None:
    """A buffered message would be lost with its worker."""
    crowd = Crowd()
    queue = store.queue("once", delivery="at_most_once")
    queue.send_many([bytes([number]) for number in range(9)])
    app = penstock.App()
    app.add("once", crowd.handle, concurrency=2, prefetch=3)
    start(app)
    await_until(lambda: len(crowd.running) == 2)
    queue.send(b"x")  # the worker is notified, and could receive more
    assert queue.stats("default").in_progress == 2
    crowd.let_go()
    await_until(lambda: crowd.done == 10)


# -- by priority -------------------------------------------------------------------------------------------------------


def test_slots_are_reserved_for_urgent_priorities(store: penstock.Store, start: Any) -> None:
    crowd = Crowd()
    queue = store.queue("work")
    queue.send_many([penstock.Outgoing(payload=f"late-{number}".encode(), priority=9) for number in range(6)])
    start({"work": crowd.handle}, slots={0: 4, 5: 2})
    await_until(lambda: len(crowd.running) == 2)
    queue.send_many([penstock.Outgoing(payload=f"soon-{number}".encode(), priority=1) for number in range(6)])
    await_until(lambda: len(crowd.running) == 4)
    assert sorted(one[:4] for one in crowd.running) == [b"late", b"late", b"soon", b"soon"]
    crowd.let_go()
    await_until(lambda: crowd.done == 12)
    assert crowd.most == 4


def test_slots_are_shared_by_all_queues(store: penstock.Store, start: Any) -> None:
    crowd = Crowd()
    for name in ("one", "two"):
        store.queue(name).send_many([f"{name}-{number}".encode() for number in range(4)])
    start({"one": crowd.handle, "two": crowd.handle}, slots=3)
    await_until(lambda: len(crowd.running) == 3)
    crowd.let_go()
    await_until(lambda: crowd.done == 8)
    assert crowd.most == 3


@pytest.mark.parametrize("names", [("ordinary", "urgent"), ("urgent", "ordinary")])
def test_priority_is_kept_between_the_queues_of_a_worker(
    store: penstock.Store, start: Any, names: tuple[str, str]
) -> None:
    first, go, order = threading.Event(), threading.Event(), []

    def handle(delivery: penstock.Delivery) -> None:
        first.set()
        go.wait(60)
        order.append((delivery.queue, delivery.priority))

    store.queue("ordinary").send_many([penstock.Outgoing(payload=b"", priority=5) for _ in range(10)])
    worker = start(dict.fromkeys(names, handle), slots=1)
    await_until(first.is_set)
    store.queue("urgent").send_many([penstock.Outgoing(payload=b"", priority=priority) for priority in (0, 7, 0)])
    # The slot stays occupied until the worker was notified of the commit.
    await_until(lambda: supply_of(worker, "urgent") is not Supply.EMPTY)
    go.set()
    await_until(lambda: len(order) == 13)
    assert order[1:] == [("urgent", 0)] * 2 + [("ordinary", 5)] * 9 + [("urgent", 7)]


def supply_of(worker: penstock.Worker, queue: str) -> Supply:
    """The worker's state of one queue."""
    assert worker._fetcher is not None
    return next(demand.state for source, demand in worker._fetcher._demands.items() if source.name == queue)


def test_queues_of_equal_priority_take_turns(store: penstock.Store) -> None:
    order: list[str] = []
    for name in ("one", "two"):
        store.queue(name).send_many([b""] * 10)
    handlers = dict.fromkeys(("one", "two"), lambda delivery: order.append(delivery.queue))
    penstock.Worker(store, handlers, slots=1).run(once=True)
    assert len(order) == 20
    assert abs(order[:10].count("one") - 5) <= 1


def test_a_priority_without_a_limit_takes_that_of_the_next_better_one() -> None:
    slots = PrioritySlots({2: 5, 4: 3})
    assert [slots.limit(priority) for priority in (0, 2, 3, 4, 1_000)] == [5, 5, 5, 3, 3]
    assert slots.grant([Offer([0, 4, 4, 4, 4], 0, 0)], waiting=0) == [3]


def test_free_slots_are_granted_by_priority_then_in_turn() -> None:
    slots = PrioritySlots(4)
    assert slots.grant([Offer([5] * 9, 0, 0), Offer([0, 0, 5, 5], 0, 0)], waiting=0) == [2, 2]
    assert slots.grant([Offer([0] * 9, 2, 0), Offer([0] * 9, 0, 0)], waiting=1) == [1, 2]
    assert slots.grant([Offer([0], 0, 7), Offer([0], 0, 3)], waiting=3) == [0, 1]


@pytest.mark.parametrize("slots", [0, {}, {0: 2, 1: 3}, {-1: 2}, {0: 0}, "many", {"0": 2}])
def test_invalid_slots_are_refused(store: penstock.Store, slots: Any) -> None:
    with pytest.raises(InvalidInput, match=r"slots|priority"):
        penstock.Worker(store, {"work": lambda delivery: None}, slots=slots)


# -- what is accepted --------------------------------------------------------------------------------------------------


def test_accepted_queues_can_change_while_a_worker_runs(store: penstock.Store, start: Any) -> None:
    seen: list[str] = []

    def handle(delivery: penstock.Delivery) -> None:
        seen.append(delivery.queue)

    worker = start({"letters": handle, "parcels": handle}, queues=["letters"])
    store.queue("parcels").send(b"p")
    store.queue("letters").send(b"l")
    await_until(lambda: seen == ["letters"])
    worker.accept(["parcels"])
    await_until(lambda: seen == ["letters", "parcels"])
    worker.accept([])
    assert worker.accepted == []
    store.queue("letters").send(b"l")
    store.queue("parcels").send(b"p")
    worker.accept(None)
    await_until(lambda: len(seen) == 4)
    with pytest.raises(InvalidInput, match="did you mean 'parcels'"):
        worker.accept(["parcel"])


# -- waiting -----------------------------------------------------------------------------------------------------------


def test_a_handler_that_waits_gives_its_slot_back(store: penstock.Store, start: Any) -> None:
    """One slot, and each handler waits for the next message: unless it frees its slot, the innermost never runs."""
    queue = store.queue("work")
    order: list[int] = []

    def handle(delivery: penstock.Delivery) -> None:
        depth = delivery.json()
        if depth < 4:
            queue.send(depth + 1, address=f"depth {depth + 1}")
            queue.wait(f"depth {depth + 1}", timeout_seconds=60)
        order.append(depth)

    start({"work": handle}, concurrency=1)
    queue.send(0, address="depth 0")
    queue.wait("depth 0", timeout_seconds=60)
    assert order == [4, 3, 2, 1, 0]


def test_an_async_handler_that_waits_gives_its_slot_back(store: penstock.Store, start: Any) -> None:
    queue = store.queue("work")
    order: list[int] = []

    async def handle(delivery: penstock.AsyncDelivery) -> None:
        own = delivery._queue
        depth = delivery.json()
        if depth < 4:
            await own.send(depth + 1, address=f"depth {depth + 1}")
            await own.wait(f"depth {depth + 1}", timeout_seconds=60)
        order.append(depth)

    start({"work": handle}, slots={0: 1})
    queue.send(0, address="depth 0")
    queue.wait("depth 0", timeout_seconds=60)
    assert order == [4, 3, 2, 1, 0]


def test_a_handler_in_a_process_that_waits_gives_its_slot_back(
    store: penstock.Store, url: str, start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECURSING_URL", url)
    app = penstock.App()
    app.add("work", recursive_handler.handle, run="process", concurrency=1)
    start(app)
    store.queue("work").send(0, address="depth 0")
    assert store.queue("work").wait("depth 0", timeout_seconds=60) == "succeeded"


def test_handlers_returning_from_a_wait_do_not_exceed_the_concurrency(store: penstock.Store, start: Any) -> None:
    queue, crowd = store.queue("work"), Crowd()
    came_back = threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        if delivery.payload == b"first":
            queue.send(b"second", address="second")
            queue.wait("second", timeout_seconds=60)
            came_back.set()
        elif delivery.payload == b"second":
            queue.send_many([b"third", b"fourth"])
        else:
            crowd.handle(delivery)

    start({"work": handle}, concurrency=1)
    queue.send(b"first")
    await_until(lambda: crowd.running or came_back.is_set())
    crowd.let_go()
    await_until(came_back.is_set)
    await_until(lambda: crowd.done == 2)
    assert crowd.most == 1


def test_handlers_returning_from_a_wait_precede_new_ones(store: penstock.Store, start: Any) -> None:
    queue, crowd, order = store.queue("work"), Crowd(), []

    def handle(delivery: penstock.Delivery) -> None:
        if delivery.payload == b"first":
            queue.send(b"second", address="second")
            queue.wait("second", timeout_seconds=60)
        elif delivery.payload == b"second":
            queue.send_many([b"third", b"fourth", b"fifth"])
            await_until(lambda: worker.status()[0].waiting == 3)  # they are ready when the slot is freed
        else:
            crowd.handle(delivery)
        order.append(delivery.payload)

    app = penstock.App()
    app.add("work", handle, concurrency=1, prefetch=3)
    worker = start(app)
    (slots,) = worker._sources.values()
    queue.send(b"first")
    await_until(lambda: crowd.running == [b"third"] and slots._returning == 1 and worker.status()[0].waiting == 2)
    crowd.let_go()
    await_until(lambda: len(order) == 5)
    assert order == [b"second", b"third", b"first", b"fourth", b"fifth"]


# -- order -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["thread", "loop", "batch"])
def test_an_ordered_queue_is_handled_in_order_retries_included(store: penstock.Store, kind: str) -> None:
    queue = store.queue("ledger", ordered=True, shards=4, max_retries=5)
    keys = [f"account {number}" for number in range(6)]
    queue.send_many([penstock.Outgoing(payload=[key, move], key=key) for move in range(8) for key in keys])
    done: dict[str, list[int]] = {key: [] for key in keys}
    failed: set[str] = set()

    def book(delivery: Any) -> None:
        key, move = delivery.json()
        if move == 3 and key not in failed:
            failed.add(key)
            raise penstock.Retry(0, "once")
        done[key].append(move)

    async def book_async(delivery: penstock.AsyncDelivery) -> None:
        await asyncio.sleep(0)
        book(delivery)

    def book_batch(several: list[penstock.Delivery]) -> list[Any]:
        results: list[Any] = []
        for delivery in several:
            if results and isinstance(results[-1], penstock.Retry):
                results.append(penstock.Retry(0, "behind"))
                continue
            try:
                book(delivery)
                results.append(None)
            except penstock.Retry as error:
                results.append(error)
        return results

    app = penstock.App()
    if kind == "batch":
        app.add("ledger", book_batch, batch_size=3)
    else:
        app.add("ledger", book if kind == "thread" else book_async)
    penstock.Worker(store, app, concurrency=4).run(once=True)
    assert done == {key: list(range(8)) for key in keys}
    assert failed == set(keys)


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_handler_of_an_ordered_queue_may_settle_now_and_then_itself(store: penstock.Store, kind: str) -> None:
    """The pending settlements of earlier messages are sent in the same call."""
    queue = store.queue("ledger", ordered=True)
    queue.send_many(range(12))
    refused: list[penstock.PenstockError] = []

    def book(delivery: Any) -> None:
        if delivery.json() % 3 == 1:
            raise penstock.Reject("no such account")
        if delivery.json() % 3 == 2:
            try:
                delivery.ack()
            except penstock.PenstockError as error:
                refused.append(error)

    async def book_async(delivery: penstock.AsyncDelivery) -> None:
        if delivery.json() % 3 == 1:
            raise penstock.Reject("no such account")
        if delivery.json() % 3 == 2:
            try:
                await delivery.ack()
            except penstock.PenstockError as error:
                refused.append(error)

    penstock.Worker(store, {"ledger": book if kind == "thread" else book_async}).run(once=True)
    stats = queue.stats(group="default")
    assert (refused, stats.done, stats.dead) == ([], 8, 4)
