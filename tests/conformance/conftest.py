"""A store of every engine through every client, with an injected clock and random source."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Queue, Store
from tests.conformance.clients import CLIENTS, Opener
from tests.conformance.clock import Chance, Clock
from tests.conformance.engines import (
    CLUSTER_MARKED,
    ENGINES,
    EVERY_ENGINE_MARKED,
    REDIS_CLUSTER,
    VALKEY,
    VALKEY_MARKED,
    EngineRow,
)

# All values differ, so that mixed-up fields are noticed.
POLICY: dict[str, Any] = {
    "lease_seconds": 37,
    "max_retries": 3,
    "backoff_base_seconds": 11,
    "backoff_factor": 3,
    "backoff_jitter_seconds": 4,
    "backoff_max_seconds": 150,
    "history_seconds": 7_001,
    "dead_letter_seconds": 90_007,
    "group_idle_seconds": 50_021,
}


# What the asynchronous client runs on further engines: every verb once, concurrent calls, and calls that wait. The rest
# of it does not depend on the engine, and is tested on two.
ASYNCHRONOUS = (
    "test_ack_many",
    "test_batch_queues",
    "test_batch_wait",
    "test_concurrency",
    "test_lifecycle",
    "test_long_poll",
    "test_producer",
    "test_send_many",
    "test_settle_many",
    "test_undone_calls",
)
# What runs on a cluster of Redis servers: facts of the store, what spans queues, and every verb once. The functions are
# those of a single server. PENSTOCK_TEST_CLUSTER=all runs everything.
CLUSTERED = (
    "test_batch_queues",
    "test_gq",
    "test_ledger",
    "test_lifecycle",
    "test_long_poll",
    "test_random_life",
    "test_rsqueue",
    "test_schedules",
    "test_sink",
    "test_store",
    "test_sweep",
    "test_ticks",
    "test_windows",
)


# What is otherwise on a cluster, where each shard has a slot of its own (docs/redis-engine.md): a send of plain
# messages is whole, so it is in one shard, and the number of shards is fixed.
NOT_CLUSTERED = (
    "test_one_send_of_many_spreads_over_the_shards",
    "test_the_number_of_shards_does_not_change_under_live_messages",
)


# What runs on Valkey, with the functions that are tested on Redis: a file or two for each kind of command they use.
ON_VALKEY = (
    "test_ack_many",
    "test_address",
    "test_batch_cancel",
    "test_batch_queues",
    "test_consumers",
    "test_dead_letters",
    "test_expiry",
    "test_groups",
    "test_lifecycle",
    "test_ordered",
    "test_remove",
    "test_retry",
    "test_same_id",
    "test_schedules",
    "test_seek",
    "test_stale_tokens",
    "test_sink",
    "test_trim",
    "test_windows",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _is_proved_elsewhere(item)]


def _is_proved_elsewhere(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    values: dict[str, Any] = {} if callspec is None else callspec.params
    row = values.get("engine_row")
    if row is REDIS_CLUSTER:
        is_chosen = item.path.stem in CLUSTERED or os.environ.get("PENSTOCK_TEST_CLUSTER") == "all"
        is_other = getattr(item, "originalname", None) in NOT_CLUSTERED
        return values.get("client_kind") == "async" or not is_chosen or is_other
    if row is VALKEY:
        return values.get("client_kind") == "async" or item.path.stem not in ON_VALKEY
    is_further = isinstance(row, EngineRow) and row not in ENGINES
    return is_further and values.get("client_kind") == "async" and item.path.stem not in ASYNCHRONOUS


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def chance() -> Chance:
    return Chance()


@pytest.fixture(params=(*EVERY_ENGINE_MARKED, CLUSTER_MARKED, VALKEY_MARKED), ids=lambda row: row.name)
def engine_row(request: pytest.FixtureRequest) -> EngineRow:
    row: EngineRow = request.param
    return row


@pytest.fixture(params=["sync", pytest.param("async", marks=pytest.mark.async_client)])
def client_kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def url(engine_row: EngineRow, tmp_path: Path) -> str:
    return engine_row.fresh_url(tmp_path)


@pytest.fixture
def open_store(engine_row: EngineRow, client_kind: str, url: str, clock: Clock, chance: Chance) -> Iterator[Opener]:
    """Opens the test's store, any number of times; `clock=None` restores the real clock."""
    opened: list[Store] = []

    def opener(at: str = url, **settings: Any) -> Store:
        given = {**engine_row.settings(at), "clock": clock, "random": chance, **settings}
        store = CLIENTS[client_kind](at, **{name: value for name, value in given.items() if value is not None})
        opened.append(store)
        return store

    yield opener
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Opener) -> Store:
    return open_store()


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue("orders", **POLICY)


@pytest.fixture
def live_queue(open_store: Opener) -> Queue:
    """A queue on the real clock, for tests that block."""
    return open_store(clock=None).queue("orders", **POLICY)
