"""Incremental updates of the tables equal their recomputation."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import Delivery, Queue, Store
from penstock.spark.computed_columns import DATED, READ
from penstock.spark.lake.compaction import drop_old
from penstock.spark.lake.lake import Lake, open_lake
from penstock.spark.lake.table_files import kept_frame
from penstock.spark.lake.table_update import update_tables
from penstock.spark.report.summary import width_for
from tests.conformance.clock import Clock
from tests.spark.lakes import Crash, crash_at, gone_process, run_archive
from tests.spark.stores import fill

# Each test computes the tables several times, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)
ANEW = "everything is computed anew"
ROUNDS = 3
SOON: dict[str, Any] = {"max_retries": 2, "lease_seconds": 20, "backoff_base_seconds": 1, "backoff_jitter_seconds": 0}


def tables(spark: SparkSession, lake: Lake) -> dict[str, Counter[tuple[Any, ...]]]:
    """All rows of all tables, as comparable values."""
    found = {}
    for name, schema in {**READ, **DATED}.items():
        rows = kept_frame(spark, lake, name, schema).collect()
        found[name] = Counter(tuple(_plain(value) for value in row) for row in rows)
    return found


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    return tuple(_plain(one) for one in value) if isinstance(value, list | tuple) else value


def update(spark: SparkSession, store: Store, url: str, path: Path, *, recompute: bool = False) -> tuple[Lake, bool]:
    """Archive and compute the tables; returns whether everything was recomputed."""
    run_archive(spark, store, url, path)
    lake, said = open_lake(spark, store.engine, str(path)), list[str]()
    update_tables(spark, lake, width_for, said.append, recompute=recompute)
    return lake, ANEW in said


def assert_same_as_anew(spark: SparkSession, lake: Lake) -> None:
    mine = tables(spark, lake)
    update_tables(spark, lake, width_for, recompute=True)
    whole = tables(spark, lake)
    for name, rows in whole.items():
        assert mine[name] - rows == rows - mine[name] == Counter(), name


def act(queue: Queue, chance: random.Random, clock: Clock, sent: list[str]) -> None:
    """Random calls of a producer, two groups of workers and an operator."""
    sent += queue.send_many([{"n": number} for number in range(chance.randrange(6))])
    sent.append(queue.send("soon over", ttl_seconds=chance.choice([2, 40])))
    queue.send("later", delay_seconds=chance.choice([1, 5]), ttl_seconds=chance.choice([1, 300]))
    clock.advance(seconds=chance.random())
    for group in ("default", "b"):
        for delivery in queue.receive(limit=4, group=group, consumer=chance.choice("xyz")):
            clock.advance(seconds=chance.random())
            with suppress(penstock.LeaseLost):  # it has expired
                settle(delivery, chance)
    match chance.randrange(5):
        case 0:
            queue.redrive(limit=3)
        case 1:
            queue.seek("default", clock.now - timedelta(seconds=20))
        case 2:
            queue.seek("b", "end")
        case 3:
            queue.remove([chance.choice(sent)])
    clock.advance(seconds=chance.choice([0.2, 3, 30]))


def settle(delivery: Delivery, chance: random.Random) -> None:
    match chance.randrange(6):
        case 0:
            delivery.nak(f"host {chance.randrange(9)} is busy", delay_seconds=0)
        case 1:
            delivery.reject("wrong")
        case 2:
            pass  # its lease ends, perhaps only after the next run
        case _:
            delivery.ack()


def test_incremental_update_equals_recomputation(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    url, clock, chance, sent = f"sqlite:///{tmp_path}/store.db", Clock(), random.Random(seed), list[str]()
    with penstock.connect(url, clock=clock) as store:
        queue, path = store.queue("orders", **SOON), tmp_path / "lake"
        anew = []
        for _ in range(ROUNDS):
            for _ in range(8):
                act(queue, chance, clock, sent)
            store.sweep()
            anew.append(update(spark, store, url, path)[1])
        assert anew == [True, *[False] * (ROUNDS - 1)]
        assert_same_as_anew(spark, open_lake(spark, store.engine, str(path)))


def test_changes_of_final_counts_cause_recomputation(spark: SparkSession, tmp_path: Path) -> None:
    url, path, clock = f"sqlite:///{tmp_path}/store.db", tmp_path / "lake", Clock()
    with penstock.connect(url, clock=clock) as store:
        queue = store.queue("orders", **SOON)
        queue.send_many(list(range(9)))
        queue.ack_many(queue.receive(limit=4))
        assert update(spark, store, url, path)[1]
        queue.receive(limit=2, group="b")[0].ack()
        assert update(spark, store, url, path)[1], "a new group has lives of messages that were counted"
        queue.seek("default", "end")
        assert not update(spark, store, url, path)[1]
        queue.seek("default", 4)
        lake, is_anew = update(spark, store, url, path)
        assert is_anew, "what the group was moved past is ready again, without an entry"
        states = {(row["group"], row["outcome"]): row["messages"] for row in
                  kept_frame(spark, lake, "outcomes", READ["outcomes"]).collect()}  # fmt: skip
        assert states["default", "ready"] == queue.stats("default").available == 5
        clock.advance(seconds=3 * 86_400)
        drop_old(open_lake(spark, store.engine, str(path)), keep_days=1)
        assert update(spark, store, url, path)[1], "entries have gone"


def test_interrupted_update_is_completed_or_undone_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, path = f"sqlite:///{tmp_path}/store.db", tmp_path / "lake"

    def crash() -> None:
        raise Crash

    with penstock.connect(url) as store:
        fill(store, 14)
        update(spark, store, url, path)
        for point in ("planned", "moved", "published"):
            fill(store, 7)
            store.queue("orders").redrive(limit=2)
            run_archive(spark, store, url, path)
            lake = open_lake(spark, store.engine, str(path))
            lake.manifest.process = gone_process()
            with monkeypatch.context() as patch:
                crash_at(point, crash, patch)
                with pytest.raises(Crash):
                    update_tables(spark, lake, width_for)
        lake, is_anew = update(spark, store, url, path)
        assert not is_anew
        assert not lake.folder.exists("_staging")
        assert {file.path for file in lake.folder.list("tables", ".parquet")} == set(lake.manifest.files("tables"))
        assert_same_as_anew(spark, lake)
