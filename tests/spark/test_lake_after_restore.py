"""A lake that is ahead of its restored store is refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import apsw
import pytest
from pyspark.sql import SparkSession

import penstock
from penstock import LogDiverged, Queue
from tests.spark.lakes import run_archive


def copy(source: Path, target: Path) -> None:
    """Restore into the same file, which Spark's workers have open."""
    with closing(apsw.Connection(str(source))) as there, closing(apsw.Connection(str(target))) as here:
        with here.backup("main", there, "main") as backup:
            backup.step()


def work(queue: Queue, count: int) -> None:
    queue.send_many(list(range(count)))
    queue.ack_many(queue.receive(limit=count))


@pytest.mark.parametrize("archived_before", [False, True], ids=["before the first run", "between two runs"])
def test_a_lake_that_is_ahead_of_its_store_is_refused(
    spark: SparkSession, tmp_path: Path, archived_before: bool
) -> None:
    path, lake = tmp_path / "store.db", tmp_path / "lake"
    url = f"sqlite:///{path}"
    with penstock.connect(url) as store:
        work(store.queue("orders"), 2)
        if archived_before:
            run_archive(spark, store, url, lake)
    copy(path, tmp_path / "copy.db")
    with penstock.connect(url) as store:
        work(store.queue("orders"), 3)
        run_archive(spark, store, url, lake)
        run_archive(spark, store, url, lake)
    copy(tmp_path / "copy.db", path)
    with penstock.connect(url) as store:
        work(store.queue("orders"), 9)
        with pytest.raises(LogDiverged, match="new directory"):
            run_archive(spark, store, url, lake)
        assert run_archive(spark, store, url, tmp_path / "new").archive == 11
        assert run_archive(spark, store, url, tmp_path / "new").archive == 0
