"""Asynchronous stores on the real engine, in real time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock import AsyncStore
from penstock.client.aio.queue import AsyncQueue
from penstock.client.connection import open_engine
from tests.client.observed_engine import Observed


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.fixture
async def engine(url: str) -> Observed:
    return Observed(open_engine(url))


@pytest.fixture
async def store(engine: Observed) -> AsyncIterator[AsyncStore]:
    store = AsyncStore(engine.as_engine())
    yield store
    engine.open_gates()
    await asyncio.wait_for(store.close(), 60)


@pytest.fixture
async def queue(store: AsyncStore) -> AsyncQueue:
    return await store.queue("orders", max_payload_bytes=1000)
