"""Source, sink, lake and report on a Redis Cluster, from a queue that is spread over its slots: one pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.spark.source import Task
from tests.cli.cli_runner import Cli
from tests.engines.redis.cluster import fresh_cluster_store
from tests.spark.source_frames import drain, frame, numbers, rows_between, stream, stream_reader

pytestmark = pytest.mark.database_server
SHARDS = 3


@pytest.fixture
def url() -> str:
    return fresh_cluster_store()


def test_source_sink_lake_and_report(
    spark: SparkSession, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cli = Cli(tmp_path)
    cli.url = url
    with penstock.connect(url) as store:
        for name in ("orders", "copies"):
            store.queue(name, shards=SHARDS)
        queue = store.queue("orders")
        for number in range(28):
            queue.send(number)
        deliveries = queue.receive(limit=28)
        for delivery in deliveries[::7]:
            delivery.reject("wrong")
        queue.ack_many([one for place, one in enumerate(deliveries) if place % 7 > 1])
        rows = frame(spark, url, minPartitions=SHARDS)
        assert rows.count() == 28
        assert rows.rdd.getNumPartitions() == SHARDS
        rows.selectExpr("payload", "cast(position as string) as key").limit(6).write.format("penstock").mode(
            "append"
        ).options(url=url, queue="copies").save()
        assert len(store.queue("copies").receive(limit=10)) == 6
    answer = cli.json("pipeline", "run")
    assert answer["archived"]["archive"] == 24
    assert Path("penstock-report.html").read_text().startswith("<!doctype html>")
    assert "archive: 24 rows in the lake, 24 of them compared with the store" in cli("pipeline", "verify").stdout


def test_a_stream_goes_on_in_every_shard(spark: SparkSession, url: str, tmp_path: Path) -> None:
    with penstock.connect(url) as store:
        queue = store.queue("orders", shards=SHARDS)
        for first in (0, 20):
            for number in range(first, first + 20):
                queue.send(number)
            drain(stream(spark, url, maxRowsPerTrigger=7), tmp_path)
        found = spark.read.parquet(str(tmp_path / "out"))
        assert sorted(int(row.payload) for row in found.select("payload").collect()) == numbers(queue) == [*range(40)]


def test_each_shard_is_read_by_tasks_of_its_own(url: str) -> None:
    with penstock.connect(url) as store:
        queue = store.queue("orders", shards=SHARDS)
        for number in range(30):
            queue.send(number)
        reader = stream_reader(url, minPartitions=2 * SHARDS)
        start: dict[str, Any] = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        tasks = [task for task in reader.partitions(start, end) if isinstance(task, Task)]
        shards_read = [{part.witness[0] for part in task.parts} for task in tasks]
        assert all(len(one) == 1 for one in shards_read)
        assert {shard for one in shards_read for shard in one} == {*range(SHARDS)}
        assert sorted(int(row["payload"]) for row in rows_between(reader, start, end)) == [*range(30)]
