"""Workers on real stores of every engine, in the test process; tests/faults runs them as processes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import penstock
from tests.conformance.engines import ENGINES, EngineRow

Start = Callable[..., penstock.Worker]


@pytest.fixture(params=ENGINES, ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row


@pytest.fixture
def url(engine_row: EngineRow, tmp_path: Path) -> str:
    return engine_row.fresh_url(tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[penstock.Store]:
    with penstock.connect(url) as store:
        store.migrate()
        yield store


@pytest.fixture
def start(store: penstock.Store) -> Iterator[Start]:
    """Start a worker in the background, stopped at the end of the test."""
    started: list[penstock.Worker] = []

    def start(handlers: Any, **options: Any) -> penstock.Worker:
        worker = penstock.Worker(store, handlers, **{"grace_seconds": 5, **options})
        worker.start()
        started.append(worker)
        return worker

    yield start
    for worker in started:
        worker.stop()


def await_until(true: Callable[[], object], within_seconds: float = 60) -> None:
    ends = time.monotonic() + within_seconds
    while not true():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.005)


def events(queue: penstock.Queue, message_id: str) -> list[str]:
    return [str(entry.event) for entry in queue.audit(message_id)]
