"""`format("penstock")` as a source in a real Spark session: batch and stream."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Queue, Store
from penstock.engines import tables
from penstock.engines.contract import Table
from tests.spark.source_frames import drain, frame, open_store, run_stream, stream


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue("orders")


def lively(queue: Queue) -> list[str]:
    """Messages with all fields set, some of them ended in each way."""
    ids = [
        queue.send({"n": 1}, headers={"trace": "é"}, priority=2, ttl_seconds=5_000, key="k", address="here"),
        queue.send(b"\x00\xff", created_by="shop"),
        queue.send("held", delay_seconds=900),
        *queue.send_many(list(range(20))),
    ]
    deliveries = queue.receive(limit=12)
    deliveries[0].reject("not wanted")
    deliveries[1].nak("later")
    queue.ack_many(deliveries[2:])
    return ids


@pytest.mark.parametrize("table", tables.TABLES)
def test_every_table_has_the_rows_of_the_engine(spark: SparkSession, queue: Queue, url: str, table: Table) -> None:
    lively(queue)
    engine = queue.engine
    parts = engine.window("orders", engine.earliest("orders", table), engine.horizon("orders", table), 1, table)
    expected = [_local(row) for part in parts for batch in engine.read(part) for row in batch.to_pylist()]
    read = frame(spark, url, table=table, includeHeaders="true" if table != "audit" else "false")
    rows = [row.asDict() for row in read.collect()]
    assert read.columns == list(tables.columns_of(table))
    assert expected
    assert sorted(rows, key=_place) == sorted(expected, key=_place)


def _local(row: dict[str, Any]) -> dict[str, Any]:
    """Spark returns times without a zone, in local time."""
    return {
        name: value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) else value
        for name, value in row.items()
    }


def _place(row: dict[str, Any]) -> tuple[Any, ...]:
    return row.get("entry", 0), row["position"], row.get("group") or ""


@pytest.mark.parametrize("table", tables.TABLES)
def test_a_table_without_a_row_is_an_empty_frame(spark: SparkSession, store: Store, url: str, table: Table) -> None:
    store.queue("orders", max_retries=3)
    assert frame(spark, url, table=table).collect() == []


def test_a_window_without_a_message_is_an_empty_frame(spark: SparkSession, queue: Queue, url: str) -> None:
    queue.send(1)
    night = {"startingPosition": "2026-01-01T00:00:00Z", "endingPosition": "2026-01-02T00:00:00Z"}
    assert frame(spark, url, **night).count() == 0


def test_a_queue_can_be_a_view_and_not_a_table(spark: SparkSession, queue: Queue, url: str) -> None:
    """Spark would create the table, but not pass its options to readers."""
    queue.send_many([1, 2])
    with pytest.raises(AnalysisException, match="create temporary view"):
        spark.sql(f"create table orders_table using penstock options (url '{url}', queue 'orders')")
    spark.sql(f"create temporary view orders_view using penstock options (url '{url}', queue 'orders')")
    try:
        assert spark.table("orders_view").count() == 2
    finally:
        spark.sql("drop view orders_view")


def test_large_queues_are_read_by_several_tasks(spark: SparkSession, queue: Queue, url: str) -> None:
    queue.send_many([b"%d" % number for number in range(50_000)])
    read = frame(spark, url, columns="position,payload")
    assert read.rdd.getNumPartitions() >= 2
    total = read.select(F.sum(F.col("payload").cast("string").cast("long"))).first()
    assert total is not None
    assert total[0] == sum(range(50_000))


def test_stream_resumes_from_its_checkpoint(spark: SparkSession, queue: Queue, url: str, tmp_path: Path) -> None:
    queue.send_many(list(range(2_500)))
    read = stream(spark, url, group="lake", maxRowsPerTrigger=1_000).select("id", "payload")
    query = drain(read, tmp_path)
    assert [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]] == [
        1000,
        1000,
        500,
    ]
    # Spark does not commit the last batch of such a run, but the group has passed it.
    assert queue.stats("lake").lag == 0
    queue.send_many(list(range(2_500, 2_600)))
    assert queue.stats("lake").lag == 100
    drain(read, tmp_path)
    out = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(int(row.payload) for row in out.collect()) == list(range(2_600))
    assert queue.stats("lake").lag == 0


def test_uncommitted_batch_is_read_again_with_the_same_rows(
    spark: SparkSession, queue: Queue, url: str, tmp_path: Path
) -> None:
    queue.send_many(list(range(300)))
    seen: list[tuple[int, list[str]]] = []

    def run() -> None:
        read = stream(spark, url, maxRowsPerTrigger=200).select("id")
        run_stream(
            read.writeStream.foreachBatch(
                lambda rows, batch: seen.append((batch, sorted(row.id for row in rows.collect())))
            )
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
        )

    run()
    # Repeat the last batch, as after a crash of the driver before its commit.
    (tmp_path / "checkpoint" / "commits" / "1").unlink()
    (tmp_path / "checkpoint" / "commits" / ".1.crc").unlink(missing_ok=True)
    queue.send_many(list(range(50)))
    run()
    assert [batch for batch, _ in seen] == [0, 1, 1, 2]
    assert seen[1] == seen[2]
    assert len(seen[3][1]) == 50


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"queue": "ordres"}, "did you mean 'orders'"),
        ({"maxRowPerTrigger": "5"}, "did you mean 'maxRowsPerTrigger'"),
        ({"url": "sqlite:////no/such/folder/store.db"}, "there is no directory"),
    ],
)
def test_invalid_options_fail_before_work_starts(
    spark: SparkSession, queue: Queue, url: str, options: dict[str, str], said: str
) -> None:
    queue.send(1)
    with pytest.raises(AnalysisException, match=said):
        spark.read.format("penstock").options(**{"url": url, "queue": "orders", **options}).load()


def test_a_checkpoint_of_another_queue_stops_the_query(
    spark: SparkSession, queue: Queue, store: Store, url: str, tmp_path: Path
) -> None:
    queue.send(1)
    store.queue("returns").send(2)
    drain(stream(spark, url).select("id"), tmp_path)
    with pytest.raises(StreamingQueryException, match="belongs to queue"):
        drain(stream(spark, url, "returns").select("id"), tmp_path)


def test_a_group_that_workers_use_stops_the_query(spark: SparkSession, queue: Queue, url: str, tmp_path: Path) -> None:
    queue.send(1)
    queue.receive()
    with pytest.raises(StreamingQueryException, match="received with leases"):
        drain(stream(spark, url, group="default").select("id"), tmp_path)


def test_a_group_that_another_query_reads_stops_the_query(
    spark: SparkSession, queue: Queue, url: str, tmp_path: Path
) -> None:
    queue.send(1)
    first = (
        stream(spark, url, group="lake").select("id").writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "first")).trigger(processingTime="1 second").start()
    )  # fmt: skip
    try:
        while not first.lastProgress:
            first.awaitTermination(1)
        with pytest.raises(StreamingQueryException, match="is being read by another query"):
            drain(stream(spark, url, group="lake").select("id"), tmp_path)
        assert first.isActive
    finally:
        first.stop()
    drain(stream(spark, url, group="lake").select("id"), tmp_path)


def test_secrets_are_neither_in_plans_nor_in_errors(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AnalysisException) as raised:
        frame(spark, "redis://user:geh3im@127.0.0.1:1/0").count()
    assert "geh3im" not in str(raised.value)
    store, url = open_store(tmp_path, "geh3im.db")
    store.queue("orders").send(1)
    frame(spark, url).explain(True)
    frame(spark, url).select("payload").write.format("penstock").mode("append").options(url=url, queue="out").save()
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    plans = [executions.apply(place).physicalPlanDescription() for place in range(executions.size())]
    assert any("penstock" in plan for plan in plans)
    printed = capfd.readouterr()
    assert "penstock" in printed.out
    assert "geh3im" not in "".join([*plans, printed.out, printed.err])
    store.close()
