"""Rows of the lake as frames, and frames as files of the lake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from penstock.spark.lake.folders import queue_folder
from penstock.spark.lake.manifest import Sums
from penstock.spark.lake.rows import TIMES, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.folders import File, Folder
    from penstock.spark.lake.opening import Lake

LOW_BITS = 0xFFFF_FFFF


def read_table(spark: SparkSession, lake: Lake, table: Table) -> DataFrame:
    """A table of the lake as the manifest has it, whatever else may lie about."""
    return read_files(spark, lake.folder, table, list(lake.manifest.files(table)))


def read_files(spark: SparkSession, folder: Folder, table: Table, paths: list[str]) -> DataFrame:
    schema = spark_schema(table)
    if not paths:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*(folder.under(path) for path in paths))


def write_aside(frame: DataFrame, folder: Folder, table: Table, aside: str) -> tuple[list[File], Sums]:
    """Write rows that have a `place` to a directory aside, by day and place; the files made, and sums over the rows."""
    observed = Observation(f"penstock {table}")
    (
        frame.observe(observed, *sums_of(table))
        .withColumn("day", day(table))
        .write.mode("overwrite")
        .partitionBy("day", "place")
        .parquet(folder.under(aside, table))
    )
    found = observed.get
    sums = Sums(found["rows"], found["mixed"] or 0, found["added"] or 0)
    return folder.list(f"{aside}/{table}", ".parquet"), sums


def places(files: list[File], table: Table, queues: list[str], name: str) -> list[tuple[str, str, int]]:
    """Where each file written aside belongs: its directory says the day and the place of its queue."""
    adds = []
    for number, file in enumerate(files):
        *_, day_part, place_part, _ = file.path.split("/")
        queue = queues[int(place_part.removeprefix("place="))]
        adds.append((file.path, f"{table}/{day_part}/{queue_folder(queue)}/{name}-{number:04d}.parquet", file.size))
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
