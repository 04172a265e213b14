"""Verify: the lake holds what it was given, and what the store still has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from penstock.domain.errors import RangeTrimmed
from penstock.spark.lake import rows
from penstock.spark.lake.frames import day, read_table, sums_of
from penstock.spark.lake.manifest import Sums, Window

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.opening import Lake

COMPARED: tuple[Table, ...] = ("audit", "archive")


class Comparison(msgspec.Struct, frozen=True):
    """One table: rows that the lake has, rows of the store they were compared with, and what does not agree."""

    table: str
    rows: int
    compared: int
    differences: list[str]


class Verdict(msgspec.Struct, frozen=True):
    ok: bool
    comparisons: list[Comparison]
    missing_files: list[str]
    stray_files: list[str]


def verify(spark: SparkSession, lake: Lake, url: str) -> Verdict:
    """Compare the lake with its own manifest and with the store, by count and by sums over all values of all rows.

    Rows that the store has trimmed are compared with what the manifest noted when they came.
    """
    lake.finish()
    missing, stray = _files(lake)
    comparisons = []
    if not missing:
        comparisons = [_compare(spark, lake, url, table) for table in COMPARED]
    ok = not missing and not stray and not any(one.differences for one in comparisons)
    return Verdict(ok, comparisons, missing, stray)


def _files(lake: Lake) -> tuple[list[str], list[str]]:
    known = {path: entry.size for table in rows.LAKE_TABLES for path, entry in lake.manifest.files(table).items()}
    there = {file.path: file.size for table in rows.LAKE_TABLES for file in lake.folder.list(table, "")}
    missing = sorted(path for path, size in known.items() if there.get(path) != size)
    return missing, sorted(path for path in there if path not in known)


def _compare(spark: SparkSession, lake: Lake, url: str, table: Table) -> Comparison:
    windows = lake.manifest.windows()
    kept_from = lake.manifest.state.kept_from
    mine = _by_window(_numbered(read_table(spark, lake, table), windows), table)
    differences: list[str] = []
    compared = 0
    for window in windows:
        lake_sums = mine.get(window.first, Sums())
        noted = window.sums.get(table, Sums())
        if kept_from is None and lake_sums != noted:
            differences.append(f"{_name(window)}: {_told(lake_sums, noted, 'were noted when they came')}")
        store_sums = _store_sums(spark, lake, url, table, window)
        if store_sums is None:
            continue
        compared += store_sums.rows
        if lake_sums != store_sums:
            differences.append(f"{_name(window)}: {_told(lake_sums, store_sums, 'are in the store')}")
    return Comparison(table, sum(one.rows for one in mine.values()), compared, differences)


def _numbered(frame: DataFrame, windows: list[Window]) -> DataFrame:
    """Rows of joined windows count for the first of them."""
    first = F.col("window")
    for window in windows:
        if window.last != window.first:
            first = F.when(F.col("window").between(window.first, window.last), F.lit(window.first)).otherwise(first)
    return frame.withColumn("window", first)


def _by_window(frame: DataFrame, table: Table) -> dict[int, Sums]:
    found = frame.groupBy("window").agg(*sums_of(table)).collect()
    return {row["window"]: Sums(row["rows"], row["mixed"] or 0, row["added"] or 0) for row in found}


def _store_sums(spark: SparkSession, lake: Lake, url: str, table: Table, window: Window) -> Sums | None:
    """None when the store has trimmed some of it."""
    try:
        found = rows.sources(lake.engine, table, window.spans, 2 * spark.sparkContext.defaultParallelism)
    except RangeTrimmed:
        return None
    if not found:
        return Sums()
    frame = rows.frame(spark, url, table, window.first, found)
    if lake.manifest.state.kept_from is not None:
        frame = frame.where(day(table) >= lake.manifest.state.kept_from)
    return _by_window(frame.drop("place"), table).get(window.first, Sums())


def _name(window: Window) -> str:
    return f"window {window.first}" if window.first == window.last else f"windows {window.first} to {window.last}"


def _told(lake_sums: Sums, other: Sums, where: str) -> str:
    if lake_sums.rows != other.rows:
        return f"the lake has {lake_sums.rows:,} rows, {other.rows:,} {where}"
    return f"{lake_sums.rows:,} rows in both, but with other values than {where}"
