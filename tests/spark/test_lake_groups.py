"""The tables of a lake agree with the store about a group, also after a seek."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from penstock import Store
from penstock.spark.lake.frames import read_table
from penstock.spark.lake.lake import open_lake
from penstock.spark.lifecycles import lifecycles
from tests.spark.lakes import run_archive


def states(spark: SparkSession, store: Store, url: str, path: Path) -> dict[tuple[str, str], int]:
    run_archive(spark, store, url, path)
    audit = read_table(spark, open_lake(spark, store.engine, str(path)), "audit")
    found = lifecycles(audit).groupBy("group", "state").count().collect()
    return {(row["group"], row["state"]): row["count"] for row in found}


def test_skipped_message_is_not_in_the_backlog(spark: SparkSession, store: Store, url: str, tmp_path: Path) -> None:
    queue, path = store.queue("orders"), tmp_path / "lake"
    queue.send_many(list(range(8)))
    queue.send("ends for all groups while it is held", delay_seconds=60, ttl_seconds=0.001)
    queue.ack_many(queue.receive(limit=2))
    queue.receive(limit=1, group="other")
    while not store.sweep().expired:  # on a fast machine both times could be equal
        pass
    waiting = {("default", "succeeded"): 2, ("default", "ready"): 6, ("default", "expired"): 1}
    other = {("other", "leased"): 1, ("other", "expired"): 1}
    assert states(spark, store, url, path) == waiting | other | {("other", "ready"): 7}
    queue.seek("other", "end")
    queue.send("after the seek")
    waiting["default", "ready"] += 1
    assert states(spark, store, url, path) == waiting | other | {("other", "ready"): 1}
    assert queue.stats("other").available == 1
    queue.seek("other", "start")
    assert states(spark, store, url, path) == waiting | other | {("other", "ready"): 8}
    assert queue.stats("other").available == 8
    store.engine.forget("orders", "other")
    assert states(spark, store, url, path) == waiting | other
