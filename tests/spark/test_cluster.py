"""On a cluster of two workers whose executors and drivers are killed, no message is lost or sent twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Store
from penstock.engines.postgres.sink import LARGE_ROWS
from penstock.spark.lake.lake import SIGN, open_lake
from tests.conformance.assertions import assert_books_balance, assert_trail_is_legal
from tests.engines.postgres.server import fresh_database
from tests.spark.cluster import Cluster, running_cluster, wait_for
from tests.spark.lakes import assert_same
from tests.spark.source_frames import numbers, open_store

PLEDGED = "pg_prepared_xacts where database = current_database()"
# While this connection holds the lock, a task can prepare its transaction but not end.
GATE = """
    create function pass_gate() returns trigger language plpgsql as $$
        begin perform pg_advisory_xact_lock_shared(1); return new; end
    $$;
    create trigger gate before update of messages on penstock.prepared_write for each row execute function pass_gate();
    select pg_advisory_lock(1);
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with running_cluster(tmp_path_factory.mktemp("cluster")) as running:
        yield running


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store, _ = open_store(tmp_path)
    yield store
    store.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


def test_streaming_copy_is_exact_after_killed_drivers_and_executors(
    cluster: Cluster, store: Store, url: str, tmp_path: Path
) -> None:
    """Source and sink together: each batch of the source is sent once."""
    queue = store.queue("orders")
    queue.send_many(list(range(2_400)))
    words = ("copy", url, str(tmp_path / "checkpoint"), "400")

    def batches() -> int:
        """The ledger has the last batch, and while it is replaced also the one before."""
        return max((1 + int(key.split("/")[1]) for key in store.engine.ledger("sink")), default=0)

    driver = cluster.drive(*words)
    wait_for(lambda: batches() >= 1, "the first batch")
    cluster.kill_executor()
    wait_for(lambda: batches() >= 2, "batches after an executor was killed")
    driver.kill()
    assert batches() < 6, "the driver was killed too late to show anything"
    cluster.drive(*words).finish()
    assert batches() == 6
    assert numbers(store.queue("copy")) == list(range(2_400))
    assert queue.stats("copy").lag == 0


def test_process_handles_all_messages_after_killed_drivers_and_executors(
    cluster: Cluster, store: Store, url: str, tmp_path: Path
) -> None:
    """Laws 1 to 7: messages held by a killed executor or driver are delivered again, and every message ends once."""
    queue = store.queue("orders", lease_seconds=8)
    ids = queue.send_many([{"seconds": 0.05, "folder": str(tmp_path)} for _ in range(120)])
    driver = cluster.drive("handle", url)
    wait_for(lambda: queue.stats("default").done >= 10, "the first messages")
    cluster.kill_executor()
    done = queue.stats("default").done
    wait_for(lambda: queue.stats("default").done >= done + 10, "messages after an executor was killed")
    driver.kill()
    assert queue.stats("default").done < 120, "the driver was killed too late to show anything"
    cluster.drive("handle", url).finish()
    stats = assert_books_balance(queue, 120)
    assert (stats.done, stats.dead, stats.in_progress) == (120, 0, 0)
    for message_id in ids:
        assert_trail_is_legal(queue, message_id)
    handled = Counter(line.split()[0] for path in tmp_path.glob("*.txt") for line in path.read_text().splitlines())
    attempts = {message_id: max(entry.attempt for entry in queue.audit(message_id)) for message_id in ids}
    assert set(handled) == set(ids)
    assert all(handled[message_id] <= attempts[message_id] for message_id in ids)
    assert any(attempt > 1 for attempt in attempts.values()), "nothing was held when the kills came"


def test_lake_equals_the_store_after_killed_drivers_and_executors(
    cluster: Cluster, spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    """The executor and the driver die while files are written; the next run completes the lake."""
    path = tmp_path / "lake"
    queue = store.queue("orders")
    queue.send_many(list(range(3_000)))
    queue.ack_many(queue.receive(limit=2_900))

    def written() -> int:
        return len(list(path.glob("_staging/*/*/*.parquet")))

    driver = cluster.drive("keep", url, str(path))
    wait_for(lambda: written() >= 2, "the first files")
    # Frozen, so that files are left to be written however long the kill takes on a busy machine.
    driver.freeze()
    cluster.kill_executor()
    before = written()
    driver.go_on()
    wait_for(lambda: written() > before, "files after an executor was killed")
    driver.kill()
    assert not store.engine.ledger("lake", f"{lake_id(path)}/window/"), "the driver was killed too late"
    queue.ack_many(queue.receive(limit=50))
    cluster.drive("keep", url, str(path)).finish()
    assert_same(spark, store, open_lake(spark, store.engine, str(path)))


def test_large_parts_are_sent_once_after_killed_drivers_and_executors(cluster: Cluster, tmp_path: Path) -> None:
    """On PostgreSQL the parts are prepared transactions; undecided ones of killed processes are rolled back."""
    url = fresh_database(folder=tmp_path)
    words = ("pour", url, str(2 * LARGE_ROWS))
    with penstock.connect(url) as store, psycopg.connect(url, autocommit=True) as watcher:

        def count(rows: str) -> int:
            return len(watcher.execute(f"select 1 from {rows}").fetchall())

        watcher.execute(GATE)
        driver = cluster.drive(*words)
        wait_for(lambda: count(PLEDGED) == 2, "two parts that are pledged")
        cluster.kill_executor()
        wait_for(lambda: count(PLEDGED) == 3, "a part that is pledged again")
        driver.kill()
        assert not store.engine.ledger("sink")
        watcher.execute("select pg_advisory_unlock_all()")
        cluster.drive(*words).finish()
        assert numbers(store.queue("poured")) == list(range(2 * LARGE_ROWS))
        store.sweep()
        assert (count(PLEDGED), count("penstock.prepared_write")) == (0, 0)


def lake_id(path: Path) -> str:
    found: str = json.loads((path / SIGN).read_text())["lake"]
    return found
