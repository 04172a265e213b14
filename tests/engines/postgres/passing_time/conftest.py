"""Tests with an injected clock, in which messages pass retention."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

import penstock
from penstock import Queue, Store
from tests.conformance.clock import Clock
from tests.engines.postgres.passing_time.history import HISTORY


@pytest.fixture
def clock() -> Clock:
    return Clock(datetime.now(UTC))


@pytest.fixture
def store(postgres_url: str, clock: Clock) -> Iterator[Store]:
    with penstock.connect(postgres_url, clock=clock) as store:
        yield store


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue("orders", history_seconds=HISTORY)
