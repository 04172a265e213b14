"""Lease renewal, heartbeats, and handlers that exceed max_seconds."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import Any

import pytest

import penstock
from tests.workers import hanging_handler
from tests.workers.conftest import await_until, events


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_a_lease_lasts_as_long_as_its_handler(store: penstock.Store, kind: str) -> None:
    # Long enough for heartbeats on a busy machine.
    queue = store.queue("work", lease_seconds=1.5)
    message = queue.send(b"x")

    def handle(delivery: penstock.Delivery) -> None:
        time.sleep(3)
        assert queue.receive() == [], "somebody else could take it"

    async def handle_async(delivery: penstock.AsyncDelivery) -> None:
        await asyncio.sleep(3)

    penstock.Worker(store, {"work": handle if kind == "thread" else handle_async}).run(once=True)
    assert events(queue, message) == ["send", "receive", "ack"]


def test_messages_buffered_too_long_are_released_without_counting_the_attempt(
    store: penstock.Store, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("work", lease_seconds=3)
    ids = queue.send_many([b"1", b"2", b"3", b"4"])
    go = threading.Event()
    app = penstock.App()
    app.add("work", lambda delivery: go.wait(60), concurrency=1, prefetch=3)
    with caplog.at_level(logging.WARNING, "penstock.worker"):
        worker = start(app)
        await_until(lambda: worker.status()[0].waiting == 3)
        await_until(lambda: queue.stats("default").in_progress == 1)
    assert "3 messages waited for too long" in caplog.text
    assert [events(queue, one)[-1] for one in ids[1:]] == ["release"] * 3
    others = queue.receive(limit=10)
    assert [delivery.attempt for delivery in others] == [1, 1, 1], "not counted, and not received again by the worker"
    queue.ack_many(others)
    go.set()
    await_until(lambda: events(queue, ids[0]) == ["send", "receive", "ack"])
    queue.send_many([b"5", b"6", b"7"])
    await_until(lambda: queue.stats("default").done == 7)


def test_the_rest_of_a_shard_is_released_in_order_when_its_handler_hangs(store: penstock.Store, start: Any) -> None:
    queue = store.queue("work", lease_seconds=1.5, ordered=True)
    queue.send_many([penstock.Outgoing(payload=number, key="k") for number in range(5)])
    go, order = threading.Event(), []

    def handle(delivery: penstock.Delivery) -> None:
        if delivery.json() == 0:
            go.wait(60)
        order.append((delivery.json(), delivery.attempt))

    app = penstock.App()
    app.add("work", handle, concurrency=1, prefetch=10)
    start(app)
    await_until(lambda: queue.stats("default").in_progress == 5)
    await_until(lambda: queue.stats("default").in_progress == 1)
    go.set()
    await_until(lambda: len(order) == 5)
    assert order == [(number, 1) for number in range(5)]


def test_a_blocked_event_loop_keeps_no_messages_of_other_queues(
    store: penstock.Store, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    blocking, quick = store.queue("blocking", lease_seconds=1.5), store.queue("quick", lease_seconds=1.5)
    blocked, go, ran = threading.Event(), threading.Event(), []

    async def block(delivery: penstock.AsyncDelivery) -> None:
        blocked.set()
        go.wait(60)

    async def run(delivery: penstock.AsyncDelivery) -> None:
        ran.append(delivery.id)

    message = blocking.send(b"x")
    with caplog.at_level(logging.WARNING, "penstock.worker"):
        start({"blocking": block, "quick": run})
        await_until(blocked.is_set)
        ids = quick.send_many([b"1", b"2", b"3"])
        got: list[penstock.Delivery] = []
        while len(got) < 3:
            got += quick.receive(limit=3, wait_seconds=15) or pytest.fail("they were not given back")
        assert [delivery.attempt for delivery in got] == [1, 1, 1]
        await_until(lambda: "a handler blocks the event loop" in caplog.text)
        quick.ack_many(got)
        later = quick.send(b"4")
        time.sleep(0.5)
        assert quick.stats("default").in_progress == 0, "nothing is received while the loop is blocked"
        go.set()
        await_until(lambda: ran == [later])
    assert "the event loop turns again" in caplog.text
    await_until(lambda: events(blocking, message) == ["send", "receive", "ack"])
    assert not set(ids) & set(ran)


def test_receives_stop_while_too_many_abandoned_threads_run(
    store: penstock.Store, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = store.queue("work", max_retries=0)
    store.queue("other")
    ids = queue.send_many([b"hang"] * 9)
    release, begun = threading.Event(), []

    def handle(delivery: penstock.Delivery) -> None:
        begun.append(delivery.id)
        release.wait(60)

    app = penstock.App()
    app.add("work", handle, max_seconds=0.2, concurrency=2, prefetch=2)
    app.add("other", lambda delivery: None)
    with caplog.at_level(logging.WARNING, "penstock.worker"):
        worker = start(app)
        await_until(lambda: worker.status()[0].stuck == 4)
        await_until(lambda: "nothing is received" in caplog.text)
        assert len(begun) == 4, "not even what waits here already is begun"
        release.set()
        await_until(lambda: len(begun) == 9)
        await_until(lambda: "queue work is received from again" in caplog.text)
    await_until(lambda: worker.status()[0].stuck == 0)
    assert sorted(begun) == sorted(ids)


def test_a_worker_whose_handlers_are_all_stuck_ends_with_an_error(store: penstock.Store) -> None:
    queue = store.queue("work", max_retries=0)
    queue.send_many([b"hang"] * 5)
    release = threading.Event()
    app = penstock.App()
    app.add("work", lambda delivery: release.wait(60), max_seconds=0.2, concurrency=1)
    with pytest.raises(penstock.HandlerUnavailable, match="restart it"):
        penstock.Worker(store, app).run()
    assert queue.stats("default").available == 3
    release.set()


def test_an_async_handler_over_max_seconds_is_cancelled_and_retried(store: penstock.Store, start: Any) -> None:
    queue = store.queue("work", max_retries=0)
    message = queue.send(b"x")
    cancelled = threading.Event()

    async def handle(delivery: penstock.AsyncDelivery) -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    app = penstock.App()
    app.add("work", handle, max_seconds=0.3)
    start(app)
    await_until(lambda: queue.dead_letters())
    assert queue.dead_letters()[0].reason == "the handler ran longer than max_seconds (0.3)"
    assert events(queue, message) == ["send", "receive", "nak"]
    await_until(cancelled.is_set)


def test_a_thread_over_max_seconds_is_abandoned_and_its_slot_freed(store: penstock.Store, start: Any) -> None:
    queue = store.queue("work", max_retries=0)
    queue.send(b"hang")
    release, finished = threading.Event(), threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        if delivery.payload == b"hang":
            release.wait(60)
            finished.set()

    app = penstock.App()
    app.add("work", handle, max_seconds=0.3, concurrency=1)
    worker = start(app)
    await_until(lambda: queue.dead_letters())
    later = queue.send(b"go on")
    await_until(lambda: events(queue, later)[-1] == "ack")
    release.set()
    await_until(finished.is_set)
    assert queue.dead_letters()[0].outcome == "failed"
    assert worker.status()[0].running == 0


def test_a_process_over_max_seconds_is_killed_and_replaced(
    store: penstock.Store, start: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = store.queue("work", max_retries=0)
    queue.send({"hang": str(tmp_path / "pid")})
    app = penstock.App()
    app.add("work", hanging_handler.handle, run="process", max_seconds=1.5, concurrency=1)
    start(app)
    await_until(lambda: queue.dead_letters())
    pid = int((tmp_path / "pid").read_text())
    await_until(lambda: not hanging_handler.is_alive(pid))
    later = queue.send({})
    await_until(lambda: events(queue, later)[-1] == "ack")


def test_an_at_most_once_message_is_not_run_again_after_max_seconds(store: penstock.Store, start: Any) -> None:
    queue = store.queue("once", delivery="at_most_once")
    queue.send(b"x")
    release, runs = threading.Event(), []

    def handle(delivery: penstock.Delivery) -> None:
        runs.append(delivery.id)
        release.wait(60)

    app = penstock.App()
    app.add("once", handle, max_seconds=0.3)
    start(app)
    await_until(lambda: queue.dead_letters())
    assert (queue.dead_letters()[0].outcome, len(runs)) == ("rejected", 1)
    release.set()


# -- heartbeats --------------------------------------------------------------------------------------------------------


def test_workers_have_a_place_in_birth_order_and_give_it_up(store: penstock.Store, start: Any) -> None:
    first = start({"work": lambda delivery: None}, name="first", heartbeat_seconds=0.5)
    second = start({"work": lambda delivery: None}, name="second", heartbeat_seconds=0.5)
    await_until(lambda: first.status()[0].living == 2)
    assert [(one.name, one.index) for one in store.consumers()] == [("first", 0), ("second", 1)]
    first.stop()
    await_until(lambda: second.status()[0].index == 0)
    assert [one.name for one in store.consumers()] == ["second"]


def test_a_removed_worker_registers_again_and_gives_up_lost_messages(
    store: penstock.Store, start: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """As after a long suspension: the worker was removed and its leases were released."""
    queue = store.queue("work")
    message = queue.send(b"x")
    running, cancelled = threading.Event(), threading.Event()

    async def handle(delivery: penstock.AsyncDelivery) -> None:
        if delivery.attempt > 1:
            return
        running.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    with caplog.at_level(logging.WARNING, "penstock.worker"):
        start({"work": handle}, name="sleeper", heartbeat_seconds=0.3)
        await_until(running.is_set)
        store.engine.deregister("work", "default", "sleeper")
        await_until(cancelled.is_set)
        await_until(lambda: [one.name for one in store.consumers()] == ["sleeper"])
    await_until(lambda: events(queue, message)[-1] == "ack")
    assert events(queue, message) == ["send", "receive", "lease_end", "receive", "ack"]
    lost = [record for record in caplog.records if "lost the lease" in record.getMessage()]
    assert [getattr(record, "message_id", None) for record in lost] == [message]


def test_the_heartbeats_of_many_queues_are_one_commit(store: penstock.Store, start: Any) -> None:
    """Every commit wakes all workers of the store, and each then checks all its queues."""
    start({f"queue {number}": lambda delivery: None for number in range(20)}, heartbeat_seconds=1, sweep_seconds=None)
    assert len(store.consumers()) == 20

    def await_beat() -> None:
        latest = max(info.heartbeat_at for info in store.consumers())
        await_until(lambda: all(info.heartbeat_at > latest for info in store.consumers()))

    await_beat()
    seen = store.engine.seen()
    await_beat()
    await_beat()
    assert store.engine.seen() - seen < 20, "as many as there are queues, or more"
