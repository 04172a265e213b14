"""Tables of the lake as frames, and files that tasks wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.engines import tables
from penstock.spark.computed_columns import empty_frame
from penstock.spark.lake.columns import TIMES, spark_schema
from penstock.spark.lake.layout import queue_folder
from penstock.spark.lake.manifest import FileEntry

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.folders import Folder
    from penstock.spark.lake.lake import Lake

LOW_BITS = 0xFFFF_FFFF
GROUP_COLUMNS = ("begun", "passed")


def read_table(spark: SparkSession, lake: Lake, table: Table) -> DataFrame:
    """A table of the lake, read from the files in the manifest. The audit has two more columns, maps from group to
    position: the group began to read after `begun`, and has received or skipped everything up to `passed`.

    For an hour, or until the lake is closed, none of the files is replaced or removed.
    """
    lake.manifest.note_reader()
    frame = read_files(spark, lake.folder, table, list(lake.manifest.files(table)))
    return with_groups(spark, lake, frame) if table == "audit" else frame


def with_groups(spark: SparkSession, lake: Lake, audit: DataFrame) -> DataFrame:
    known = group_positions(spark, lake, {}).drop("readers")
    return audit.join(F.broadcast(known), "queue", "left").select(*audit.columns, *GROUP_COLUMNS)


def group_positions(spark: SparkSession, lake: Lake, readers: dict[str, list[str]]) -> DataFrame:
    """For each queue, its groups as given and the positions of the manifest."""
    begun, passed = lake.manifest.begun(), lake.manifest.passed()
    arrow = tables.pyarrow_module()
    positions = arrow.map_(arrow.string(), arrow.int64())
    fields = {"queue": arrow.string(), "readers": arrow.list_(arrow.string()), "begun": positions, "passed": positions}
    rows = [
        {
            "queue": queue,
            "readers": readers.get(queue),
            "begun": list(begun.get(queue, {}).items()),
            "passed": list(passed.get(queue, {}).items()),
        }
        for queue in sorted(begun | passed | readers)
    ]
    # From Arrow, small data is a local relation; from Python rows it would be an RDD.
    return spark.createDataFrame(arrow.Table.from_pylist(rows, arrow.schema(list(fields.items()))))


def read_files(spark: SparkSession, folder: Folder, table: Table, paths: list[str]) -> DataFrame:
    schema = spark_schema(table)
    if not paths:
        return empty_frame(spark, schema)
    return spark.read.schema(schema).parquet(*(folder.under(path) for path in paths))


def written_files(frame: DataFrame) -> list[Row]:
    """Run the tasks that write and return a row per file. Sorted here: Spark would run the tasks twice to sort."""
    return sorted(frame.collect(), key=lambda file: (file["table"], file["day"], file["queue"], file["path"]))


def placed(files: list[Row], name: str, staging: str) -> list[tuple[str, str, FileEntry]]:
    """The path of each staged file, and the path in the lake that it is moved to."""
    adds = []
    for count, file in enumerate(files):
        folder = f"{file['table']}/day={file['day']}/{queue_folder(file['queue'])}"
        entry = FileEntry(file["size"], file["rows"], file["digest"])
        adds.append((f"{staging}/{file['path']}", f"{folder}/{name}-{count:04d}.parquet", entry))
    return adds


def day(table: Table) -> Column:
    return F.date_format(F.col(TIMES[table]), "yyyy-MM-dd")


def sums_of(table: Table) -> tuple[Column, Column, Column]:
    """The number of rows and two sums of their hashes, independent of order. `window` is left out: it is not data."""
    hashed = F.xxhash64(*(F.col(f"`{name}`") for name in spark_schema(table).names if name != "window"))
    return (
        F.count(F.lit(1)).alias("rows"),
        F.bit_xor(hashed).alias("mixed"),
        F.sum(hashed.bitwiseAND(F.lit(LOW_BITS))).alias("added"),
    )
