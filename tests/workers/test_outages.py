"""Outages of the store: logged, retried, and survived."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import apsw
import pytest

import penstock
from penstock.workers.backoff import call_with_backoff
from tests.workers.conftest import await_until, events


def test_a_worker_survives_a_store_locked_longer_than_its_timeout(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "store.db"
    with penstock.connect(f"sqlite:///{path}", busy_seconds=0.1) as store:
        queue = store.queue("work", lease_seconds=30)
        running, go = threading.Event(), threading.Event()

        def handle(delivery: penstock.Delivery) -> None:
            running.set()
            go.wait(60)

        message = queue.send(b"first")
        worker = penstock.Worker(store, {"work": handle}, heartbeat_seconds=2, sweep_seconds=0.2)
        with caplog.at_level(logging.WARNING, "penstock"):
            worker.start()
            await_until(running.is_set)
            blocker = apsw.Connection(str(path))
            # The worker sweeps concurrently and may be writing.
            blocker.set_busy_timeout(10_000)
            blocker.execute("begin immediate")
            go.set()
            await_until(lambda: "trying again until it works" in caplog.text)
            time.sleep(1)
            told = caplog.text.count("trying again until it works")
            blocker.execute("rollback")
            blocker.close()
            await_until(lambda: events(queue, message)[-1] == "ack")
            await_until(lambda: "works again" in caplog.text)
            later = queue.send(b"second")
            await_until(lambda: events(queue, later)[-1] == "ack")
            worker.stop()
    assert told <= 3, "it is told once, not at every try"
    assert events_of(path, message) == ["send", "receive", "ack"]


def events_of(path: Path, message: str) -> list[str]:
    with penstock.connect(f"sqlite:///{path}") as store:
        return events(store.queue("work"), message)


def test_backoff_ends_after_its_limit_and_can_be_interrupted() -> None:
    tries: list[float] = []

    def fail() -> None:
        tries.append(time.monotonic())
        raise penstock.StoreUnavailable("nobody is there")

    with pytest.raises(penstock.StoreUnavailable, match="nobody is there"):
        call_with_backoff("the store", fail, 0.5, threading.Event())
    assert 2 <= len(tries) <= 5, "it neither gives up at once nor spins"
    stop = threading.Event()
    stop.set()
    with pytest.raises(penstock.StoreUnavailable):
        call_with_backoff("the store", fail, 60, stop)


def test_errors_that_are_not_transient_are_raised_at_once() -> None:
    def fail() -> None:
        raise penstock.SchemaTooNew("made by a newer Penstock")

    with pytest.raises(penstock.SchemaTooNew):
        call_with_backoff("the store", fail, 60, threading.Event())
