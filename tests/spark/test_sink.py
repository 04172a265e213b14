"""`format("penstock")` as a sink: rows are sent exactly once, and invalid frames are refused before any write."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import InvalidInput, Store
from penstock.spark.sink import each_batch
from penstock.spark.sink_rows import check_rows
from tests.spark.source_frames import numbers, run_stream, stream


def send(rows: DataFrame, url: str, queue: str = "out", **options: Any) -> None:
    rows.write.format("penstock").mode("append").options(url=url, queue=queue, **options).save()


def test_columns_set_the_fields_of_messages(spark: SparkSession, store: Store, url: str) -> None:
    rows = spark.range(4).select(
        F.to_json(F.struct("id")).alias("payload"),
        F.create_map(F.lit("trace"), F.col("id").cast("string")).alias("headers"),
        F.col("id").cast("short").alias("priority"),
        F.when(F.col("id") == 1, "k").alias("key"),
        F.concat(F.lit("address "), F.col("id")).alias("address"),
        F.when(F.col("id") == 3, F.lit(900)).alias("delay"),
    )
    send(rows, url, contentType="application/json")
    queue = store.queue("out")
    deliveries = queue.receive(limit=10)
    assert [delivery.json() for delivery in deliveries] == [{"id": 0}, {"id": 1}, {"id": 2}]
    message = queue.find(deliveries[1].id)
    assert (message.headers, message.priority, message.key) == ({"trace": "1"}, 1, "k")
    assert (message.address, message.content_type) == ("address 1", "application/json")
    assert queue.stats("default").held == 1


def test_many_tasks_send_every_row_once(spark: SparkSession, store: Store, url: str) -> None:
    rows = spark.range(0, 30_000, 1, 5).select(F.col("id").cast("string").alias("payload"))
    send(rows, url)
    assert numbers(store.queue("out")) == list(range(30_000))


def test_large_parts_are_sent_once_when_tasks_are_repeated(
    spark: SparkSession, store: Store, url: str, tmp_path: Path
) -> None:
    """On PostgreSQL the parts are prepared transactions: one task dies after writing its rows, when the other may have
    prepared."""
    died = tmp_path / "died"

    def dying(batches: Iterator[Any]) -> Iterator[Any]:
        yield from batches
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    numbered = spark.range(0, 50_000, 1, 2).select(F.col("id").cast("string").alias("payload"))
    rows = numbered.mapInArrow(dying, numbered.schema)
    with pytest.raises(Exception, match="crashed"):
        send(rows, url, ledger="large")
    assert store.queue("out").receive() == []
    send(rows, url, ledger="large")
    send(rows, url, ledger="large")
    assert numbers(store.queue("out")) == list(range(50_000))


def test_a_ledger_makes_a_write_happen_once(spark: SparkSession, store: Store, url: str) -> None:
    rows = spark.range(3).select(F.col("id").cast("string").alias("payload"))
    send(rows, url, ledger="nightly", batch="2026-11-15")
    send(rows, url, ledger="nightly", batch="2026-11-15")
    send(rows, url, ledger="nightly", batch="2026-11-16")
    assert numbers(store.queue("out")) == [0, 0, 1, 1, 2, 2]


def test_a_write_without_a_ledger_leaves_nothing_in_it(spark: SparkSession, store: Store, url: str) -> None:
    for _ in range(2):
        send(spark.range(3).select(F.col("id").cast("string").alias("payload")), url)
    assert numbers(store.queue("out")) == [0, 0, 1, 1, 2, 2]
    assert store.engine.ledger("sink") == {}


def test_a_write_that_fails_sends_nothing(spark: SparkSession, store: Store, url: str) -> None:
    rows = spark.range(0, 1_000, 1, 2).select(
        F.col("id").cast("string").alias("payload"),
        F.when(F.col("id") == 999, F.lit("two\nlines")).otherwise(F.lit("fine")).alias("key"),
    )
    with pytest.raises(Exception, match="control character"):
        send(rows, url)
    assert store.queue("out").receive() == []
    assert store.engine.ledger("sink") == {}


@pytest.mark.parametrize("kind", ["foreachBatch", "format"])
def test_repeated_batch_is_not_sent_again(
    spark: SparkSession, store: Store, url: str, tmp_path: Path, kind: str
) -> None:
    store.queue("orders").send_many(list(range(300)))

    def run() -> None:
        read = stream(spark, url, maxRowsPerTrigger=200).select("payload")
        writing = read.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        if kind == "format":
            writing = writing.format("penstock").options(url=url, queue="out")
        else:
            writing = writing.foreachBatch(each_batch("out", url))
        run_stream(writing)

    run()
    assert len(store.engine.ledger("sink")) == 1
    # Repeat the last batch, as after a crash of the driver between send and commit.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    store.queue("orders").send_many(list(range(300, 350)))
    run()
    assert numbers(store.queue("out")) == list(range(350))


def test_a_queue_is_not_overwritten(spark: SparkSession, store: Store, url: str) -> None:
    rows = spark.range(3).select(F.col("id").cast("string").alias("payload"))
    with pytest.raises(Exception, match=r"mode\('append'\)"):
        rows.write.format("penstock").mode("overwrite").options(url=url, queue="out").save()


def test_a_wrong_column_is_refused_before_any_row_is_written(spark: SparkSession, store: Store, url: str) -> None:
    with pytest.raises(AnalysisException, match="did you mean 'payload'"):
        send(spark.range(3).select(F.lit("x").alias("payload"), F.lit("y").alias("payloads")), url)
    assert store.queues() == []


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("body string", "needs a column payload: this frame has body"),
        ("payload string, prioritet int", "did you mean 'priority'"),
        ("payload struct<a:int>", "to_json"),
        ("payload string, priority string", "priority is string: it must be a whole number"),
        ("payload string, headers map<string,int>", "map<string,string>"),
        ("payload binary, delay string", "delay is string: it must be a number"),
        ("payload binary, delay int, delay_seconds int", "there twice"),
    ],
)
def test_columns_are_checked_by_name_and_type(spark: SparkSession, columns: str, said: str) -> None:
    schema = spark.createDataFrame([], columns).schema
    with pytest.raises(InvalidInput, match=said):
        check_rows(schema)
