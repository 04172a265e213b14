"""A stopping worker finishes or releases all its messages."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

import penstock
from tests.conformance.engines import ENGINES
from tests.workers import process_handlers
from tests.workers.conftest import await_until, events

WAITING = "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"


def test_a_stop_finishes_running_handlers_and_releases_buffered_messages(store: penstock.Store, start: Any) -> None:
    queue = store.queue("work")
    ids = queue.send_many([bytes([number]) for number in range(6)])
    running, go = threading.Semaphore(0), threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        running.release()
        go.wait(60)

    app = penstock.App()
    app.add("work", handle, concurrency=2, prefetch=2)
    worker = start(app)
    assert running.acquire(timeout=60)
    assert running.acquire(timeout=60)
    await_until(lambda: queue.stats("default").in_progress == 6)
    threading.Timer(0.3, go.set).start()
    worker.stop()
    stats = queue.stats("default")
    assert (stats.done, stats.in_progress, stats.redo) == (2, 0, 4)
    assert [delivery.attempt for delivery in queue.receive(limit=10)] == [1, 1, 1, 1]
    assert events(queue, ids[5]) == ["send", "receive", "release", "receive"]
    assert store.consumers() == []


def test_messages_of_a_receive_in_progress_are_released_and_no_handler_starts(tmp_path: Path) -> None:
    [row] = [row for row in ENGINES if row.name == "postgres"]
    url = row.fresh_url(tmp_path)
    with penstock.connect(url) as store, psycopg.connect(url) as blocker, psycopg.connect(url, autocommit=True) as eye:
        queue = store.queue("work")
        message = queue.send(b"x")
        worker = penstock.Worker(store, {"work": lambda delivery: None}, sweep_seconds=None)
        # Send before the worker starts: a receive in progress would not return the message.
        blocker.execute("lock table penstock.lease in access exclusive mode")
        worker.start()
        await_until(lambda: eye.execute(WAITING).fetchone() != (0,))
        stopping = threading.Thread(target=worker.stop)
        stopping.start()
        stopping.join(0.3)
        assert stopping.is_alive(), "it waits for what it has asked for"
        blocker.rollback()
        stopping.join(60)
        # Its lease must not end by itself: that would count as an attempt.
        assert events(queue, message) == ["send", "receive", "release"]


@pytest.mark.parametrize("kind", ["thread", "loop"])
def test_messages_of_handlers_that_exceed_the_grace_period_are_released(
    store: penstock.Store, start: Any, kind: str
) -> None:
    queue = store.queue("work")
    message = queue.send(b"x")
    running, go = threading.Event(), threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        running.set()
        go.wait(60)

    async def handle_async(delivery: penstock.AsyncDelivery) -> None:
        running.set()
        await asyncio.sleep(60)

    worker = start({"work": handle if kind == "thread" else handle_async}, grace_seconds=0.3)
    await_until(running.is_set)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 20
    go.set()
    assert events(queue, message) == ["send", "receive", "release"]
    assert queue.receive()[0].attempt == 1


def test_a_handler_that_blocks_the_event_loop_does_not_keep_the_worker_from_stopping(
    store: penstock.Store, start: Any
) -> None:
    queue = store.queue("work")
    message = queue.send(b"x")
    running, go = threading.Event(), threading.Event()

    async def handle(delivery: penstock.AsyncDelivery) -> None:
        running.set()
        go.wait(60)

    worker = start({"work": handle}, grace_seconds=0.3)
    await_until(running.is_set)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 20
    go.set()
    assert events(queue, message) == ["send", "receive", "release"]


def test_a_stop_does_not_wait_for_handlers_that_wait_for_unstarted_messages(store: penstock.Store, start: Any) -> None:
    queue, elsewhere = store.queue("work"), store.queue("elsewhere")
    message = queue.send(b"x")
    waiting = threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        elsewhere.send(b"nobody runs this", address="a")
        waiting.set()
        elsewhere.wait("a", timeout_seconds=60)

    worker = start({"work": handle}, grace_seconds=60)
    await_until(lambda: waiting.is_set() and next(iter(worker._sources.values())).busy == 0)
    began = time.monotonic()
    worker.stop()
    assert time.monotonic() - began < 20
    assert events(queue, message) == ["send", "receive", "release"]


def test_a_stop_waits_for_a_handler_that_waits_for_another_running_one(store: penstock.Store, start: Any) -> None:
    queue = store.queue("work")
    running, go = threading.Event(), threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        if delivery.json() == "outer":
            queue.send("inner", address="inner")
            queue.wait("inner", timeout_seconds=60)
        else:
            running.set()
            go.wait(60)

    queue.send("outer")
    worker = start({"work": handle}, concurrency=1, grace_seconds=30)
    await_until(running.is_set)
    threading.Timer(1.5, go.set).start()
    worker.stop()
    assert queue.stats("default").done == 2


def test_every_process_of_a_handler_is_ended_by_one_thread(store: penstock.Store) -> None:
    """The slot's thread and the stopping thread must not both end it: one would find it closed."""
    queue = store.queue("work")
    queue.send_many([{"do": "nothing"}] * 4)
    app = penstock.App()
    app.add("work", process_handlers.handle, run="process", concurrency=4)
    penstock.Worker(store, app).run(once=True)
    assert queue.stats("default").done == 4
    assert [child.name for child in multiprocessing.active_children() if child.name == "penstock-work"] == []
    await_until(lambda: not any(thread.name.startswith("penstock-work") for thread in threading.enumerate()))


def test_a_second_stop_request_stops_at_once(store: penstock.Store) -> None:
    queue = store.queue("work")
    message = queue.send(b"x")
    running, go = threading.Event(), threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        running.set()
        go.wait(60)

    worker = penstock.Worker(store, {"work": handle}, grace_seconds=60)
    thread = threading.Thread(target=worker.run)
    thread.start()
    await_until(running.is_set)
    worker.request_stop()
    thread.join(0.5)
    assert thread.is_alive(), "the first request waits for handlers"
    worker.request_stop()
    thread.join(60)
    assert not thread.is_alive()
    go.set()
    assert events(queue, message) == ["send", "receive", "release"]


def test_an_at_most_once_message_that_is_cut_short_is_a_dead_letter(store: penstock.Store, start: Any) -> None:
    queue = store.queue("once", delivery="at_most_once")
    queue.send(b"x")
    running, go = threading.Event(), threading.Event()

    def handle(delivery: penstock.Delivery) -> None:
        running.set()
        go.wait(60)

    worker = start({"once": handle}, grace_seconds=0.1)
    await_until(running.is_set)
    worker.stop()
    go.set()
    (letter,) = queue.dead_letters()
    assert letter.reason == "the worker stopped before its handler had finished"


def test_once_ends_when_nothing_is_due(store: penstock.Store) -> None:
    queue = store.queue("work")
    queue.send(b"later", delay_seconds=60)
    queue.send_many([b"now"] * 50)
    batch = queue.batch("b")
    batch.send(b"member")
    batch.set_end(b"end")
    batch.start()
    seen: list[bytes] = []
    penstock.Worker(store, {"work": lambda delivery: seen.append(delivery.payload)}).run(once=True)
    assert sorted(set(seen)) == [b"end", b"member", b"now"]
    assert (len(seen), queue.stats("default").held) == (52, 1)


def test_a_worker_is_used_once(store: penstock.Store) -> None:
    worker = penstock.Worker(store, {"work": lambda delivery: None})
    worker.run(once=True)
    with pytest.raises(penstock.InvalidInput, match="started already"):
        worker.start()
    worker.stop()


def test_an_error_that_is_not_transient_stops_the_worker_and_is_raised(store: penstock.Store) -> None:
    queue = store.queue("work")
    worker = penstock.Worker(store, {"work": lambda delivery: None}, heartbeat_seconds=0.3)
    worker.start()
    store.engine.flush("work")
    worker._fail(penstock.StoreCorrupt("damaged"))
    with pytest.raises(penstock.StoreCorrupt, match="damaged"):
        worker.stop()
    assert queue.stats() is not None


def test_an_at_most_once_message_that_was_not_started_is_nakked(store: penstock.Store) -> None:
    """Never by anything else, whatever the worker knows about it."""
    queue = store.queue("once", delivery="at_most_once")
    message = queue.send(b"x")
    worker = penstock.Worker(store, {"once": lambda delivery: None})
    worker._make_sources()
    (source,) = worker._sources
    receipt = store.engine.receive("once", "default", "w", 1, 30)
    source.add(receipt, time.monotonic())
    source.give_back_all()
    (settle,) = source.batches[receipt.token].others
    assert (str(settle.event), settle.delay_seconds) == ("nak", 0)
    store.engine.settle("once", "default", [settle])
    assert events(queue, message) == ["send", "receive", "nak"]
    assert queue.receive()[0].attempt == 2
