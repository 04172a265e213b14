"""gq's consumers in a worker: the Process callback, and registration after missed heartbeats."""

from __future__ import annotations

import threading
from typing import Any

import penstock
from penstock import Event, State
from tests.workers.conftest import await_until, events


def test_the_process_callback_gets_each_payload_and_its_result_settles_the_message(store: penstock.Store) -> None:
    queue = store.queue("orders", backoff_base_seconds=0, backoff_jitter_seconds=0)
    ids = queue.send_many(["good", "bad at first"])
    seen: list[tuple[str, int]] = []

    def process(delivery: penstock.Delivery) -> None:
        seen.append((delivery.json(), delivery.attempt))
        if delivery.json() == "bad at first" and delivery.attempt == 1:
            raise ValueError("not yet")

    penstock.Worker(store, {"orders": process}).run(once=True)
    assert sorted(seen) == [("bad at first", 1), ("bad at first", 2), ("good", 1)]
    assert [queue.audit(one)[-1].state for one in ids] == [State.SUCCEEDED] * 2
    assert [str(Event.NAK) in events(queue, one) for one in ids] == [False, True]


def test_a_worker_that_was_removed_registers_again_when_it_receives(store: penstock.Store, start: Any) -> None:
    queue = store.queue("orders")
    handled = threading.Event()
    # Without a sweeper: it would remove the worker, which registers again before the test sees it.
    worker = start({"orders": lambda delivery: handled.set()}, heartbeat_seconds=300, sweep_seconds=None)
    await_until(queue.consumers)
    # A heartbeat interval of almost 0 simulates missed heartbeats; the worker's next one is minutes away.
    store.engine.register("orders", "default", worker.name, 0.000001, 0)
    await_until(lambda: store.sweep().removed_consumers)
    queue.send(1)
    assert handled.wait(60)
    assert [(info.name, info.heartbeat_seconds) for info in queue.consumers()] == [(worker.name, 300)]
