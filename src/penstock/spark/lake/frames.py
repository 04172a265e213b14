"""Rows of the lake as frames, and what was written as files of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.spark.lake.layout import queue_folder
from penstock.spark.lake.manifest import FileEntry
from penstock.spark.lake.rows import TIMES, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.folders import Folder
    from penstock.spark.lake.opening import Lake

LOW_BITS = 0xFFFF_FFFF


def read_table(spark: SparkSession, lake: Lake, table: Table) -> DataFrame:
    """A table of the lake as the manifest has it, whatever else may lie about. An audit in which groups began late has
    a column `begun` besides, a map from their names to the position behind which they read.

    For an hour, or until the lake is closed, no file of it is replaced or removed.
    """
    lake.manifest.note_reader()
    frame = read_files(spark, lake.folder, table, list(lake.manifest.files(table)))
    late = {} if table != "audit" else _late(lake.manifest.begun())
    if not late:
        return frame
    begun = spark.createDataFrame(list(late.items()), "queue string, begun map<string,bigint>")
    return frame.join(F.broadcast(begun), "queue", "left").select(*frame.columns, "begun")


def _late(begun: dict[str, dict[str, int]]) -> dict[str, dict[str, int]]:
    """Most groups begin with the first message of their queue."""
    late = {
        queue: {group: position for group, position in groups.items() if position} for queue, groups in begun.items()
    }
    return {queue: groups for queue, groups in late.items() if groups}


def read_files(spark: SparkSession, folder: Folder, table: Table, paths: list[str]) -> DataFrame:
    schema = spark_schema(table)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(folder.under(path) for path in paths))


def written_files(frame: DataFrame) -> list[Row]:
    """Run the tasks that write; a row for each file. Sorted here: Spark would run the tasks twice to sort."""
    return sorted(frame.collect(), key=lambda file: (file["day"], file["place"], file["path"]))


def places(
    files: list[Row], table: Table, queues: list[str], name: str, aside: str
) -> list[tuple[str, str, FileEntry]]:
    """Where each file that was written aside belongs, by its day and the place of its queue."""
    adds = []
    for count, file in enumerate(files):
        folder = f"{table}/day={file['day']}/{queue_folder(queues[file['place']])}"
        entry = FileEntry(file["size"], file["rows"], file["digest"])
        adds.append((f"{aside}/{file['path']}", f"{folder}/{name}-{count:04d}.parquet", entry))
    return adds


def day(table: Table) -> Column:
    return F.date_format(F.col(TIMES[table]), "yyyy-MM-dd")


def sums_of(table: Table) -> tuple[Column, Column, Column]:
    """How many rows, and two sums of their hashes that do not depend on the order. The window is not part of a row:
    it says how the row came."""
    hashed = F.xxhash64(*(F.col(f"`{name}`") for name in spark_schema(table).names if name != "window"))
    return (
        F.count(F.lit(1)).alias("rows"),
        F.bit_xor(hashed).alias("mixed"),
        F.sum(hashed.bitwiseAND(F.lit(LOW_BITS))).alias("added"),
    )
