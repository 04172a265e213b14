"""Memory for large payloads is bounded by bytes, not by rows."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from pyarrow import parquet
from pyspark.sql import SparkSession

import penstock
from penstock.engines.positional.arrow import BATCH_BYTES, PIECE_ROWS
from penstock.spark.lake import writer
from penstock.spark.lake.columns import arrow_schema
from penstock.spark.lake.lake import open_lake
from penstock.spark.lake.rows import LakePart, rows
from penstock.spark.lake.verification import verify
from tests.spark.lakes import run_archive

MEGABYTE = 1 << 20


def test_memory_is_bounded_for_large_payloads(spark: SparkSession, tmp_path: Path) -> None:
    url, path = f"sqlite:///{tmp_path}/store.db", tmp_path / "lake"
    with penstock.connect(url) as store:
        queue = store.queue("files")
        queue.send_many([b"small"] * 300)
        for _ in range(20):
            queue.send_many([os.urandom(8 * MEGABYTE)])
        while deliveries := queue.receive(limit=50):
            queue.ack_many(deliveries)
        engine = store.engine
        [part] = engine.window("files", 0, engine.horizon("files", "archive"), 1, "archive")
        measured = _Measured()
        write = writer.writer(f"file:{tmp_path}/aside")
        told = list(write("archive", measured.seen(rows(engine, LakePart("archive", 1, part)))))
        sizes = measured.sizes
        assert sum(sizes) > 160 * MEGABYTE
        assert max(sizes) <= BATCH_BYTES + PIECE_ROWS * 8 * MEGABYTE
        assert sorted(sizes)[-2] <= BATCH_BYTES + 9 * MEGABYTE
        [name] = told[0].column("path").to_pylist()
        written = parquet.ParquetFile(tmp_path / "aside" / name).metadata
        assert written.num_rows == 320
        groups = [written.row_group(place).total_byte_size for place in range(written.num_row_groups)]
        assert max(groups) <= writer.ROW_GROUP_BYTES + max(sizes)
        [digest] = told[0].column("digest").to_pylist()
        assert writer.digest_of(f"file:{tmp_path}/aside/{name}") == digest
        run_archive(spark, store, url, path)
        assert verify(spark, open_lake(spark, engine, str(path)), url).ok


class _Measured:
    """The sizes of batches in flight."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def seen(self, batches: writer.Batches) -> writer.Batches:
        for batch in batches:
            self.sizes.append(batch.nbytes)
            yield batch


def test_large_rows_are_written_in_several_row_groups(tmp_path: Path) -> None:
    import pyarrow

    schema = arrow_schema("archive")
    noon = datetime(2026, 11, 15, 12, tzinfo=UTC)
    values = {"payload": os.urandom(4 * MEGABYTE), "queue": "files", "finished_at": noon}
    batch = pyarrow.RecordBatch.from_pylist([values] * 40, schema)
    [told] = writer.writer(f"file:{tmp_path}")("archive", iter([batch]))
    [name] = told.column("path").to_pylist()
    written = parquet.ParquetFile(tmp_path / name).metadata
    counts = [written.row_group(place).num_rows for place in range(written.num_row_groups)]
    assert sum(counts) == 40
    assert max(counts) <= writer.ROW_GROUP_BYTES // (4 * MEGABYTE)
