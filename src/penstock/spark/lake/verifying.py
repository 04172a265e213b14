"""Verify: the lake holds what it was given, and what the store still has."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import functions as F

from penstock.domain.errors import NotFound, RangeTrimmed
from penstock.spark.lake import rows
from penstock.spark.lake.courses import unlike
from penstock.spark.lake.frames import day, read_table, sums_of
from penstock.spark.lake.writing import digest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.manifest import Window
    from penstock.spark.lake.opening import Lake

COMPARED: tuple[Table, ...] = ("audit", "archive")
# The store is asked about so many messages whether they were removed since.
MOST_REMOVED = 10_000


class Sums(NamedTuple):
    """What two sets of rows have in common exactly if they are the same: their number and two sums of their hashes."""

    rows: int = 0
    mixed: int = 0
    added: int = 0


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

    Every file must have the bytes that the manifest noted when it was written; that holds for rows, too, that the store
    has trimmed since. How a row of the store becomes one of the lake is the same code on both sides; so the store is
    asked about some messages one by one besides, in the way in which it shows them to people.
    """
    lake.finish()
    missing, stray = _files(spark, lake)
    comparisons = []
    if not missing:
        comparisons = [_compare(spark, lake, url, table) for table in COMPARED]
    ok = not missing and not stray and not any(one.differences for one in comparisons)
    return Verdict(ok, comparisons, missing, stray)


def _files(spark: SparkSession, lake: Lake) -> tuple[list[str], list[str]]:
    """Files that are missing or have other bytes, and files that do not belong there."""
    known = {path: entry for table in rows.LAKE_TABLES for path, entry in lake.manifest.files(table).items()}
    there = {file.path: file.size for table in rows.LAKE_TABLES for file in lake.folder.list(table, "")}
    whole = [path for path, entry in known.items() if there.get(path) == entry.size]
    digests = _digests(spark, lake, whole)
    missing = sorted(path for path, entry in known.items() if digests.get(path) != entry.digest)
    return missing, sorted(path for path in there if path not in known)


def _digests(spark: SparkSession, lake: Lake, paths: list[str]) -> dict[str, str]:
    """Of each file that is there, read piece by piece: a file may be larger than memory."""
    if not paths:
        return {}
    tasks = min(len(paths), 4 * spark.sparkContext.defaultParallelism)
    located = spark.sparkContext.parallelize([(path, lake.folder.under(path)) for path in paths], tasks)
    return {path: digest for path, digest in located.mapValues(digest_of).collect() if digest is not None}


def _compare(spark: SparkSession, lake: Lake, url: str, table: Table) -> Comparison:
    windows = lake.manifest.windows()
    kept_from = lake.manifest.state.kept_from
    frame = _numbered(read_table(spark, lake, table), windows)
    mine = _by_window(frame, table)
    differences: list[str] = []
    compared = 0
    whole: list[Window] = []
    for window in windows:
        lake_sums = mine.get(window.first, Sums())
        noted = window.rows.get(table, 0)
        if kept_from is None and lake_sums.rows != noted:
            differences.append(f"{_name(window)}: the lake has {lake_sums.rows:,} rows, {noted:,} came")
        there = _store_frame(spark, lake, url, table, window)
        if there is None:
            continue
        store_sums = _by_window(there, table).get(window.first, Sums())
        if lake_sums.rows > store_sums.rows:
            left = _without_removed(spark, lake, frame.where(F.col("window") == window.first), there)
            lake_sums = _by_window(left, table).get(window.first, Sums())
        compared += store_sums.rows
        whole.append(window)
        if lake_sums != store_sums:
            differences.append(f"{_name(window)}: {_told(lake_sums, store_sums)}")
    if table == "audit":
        differences += unlike(spark, lake, whole)
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


def _store_frame(spark: SparkSession, lake: Lake, url: str, table: Table, window: Window) -> DataFrame | None:
    """None when the store has trimmed some of it."""
    try:
        found = rows.sources(lake.engine, table, window.spans, 2 * spark.sparkContext.defaultParallelism)
    except RangeTrimmed:
        return None
    frame = rows.frame(spark, url, table, window.first, found)
    if lake.manifest.state.kept_from is not None:
        frame = frame.where(day(table) >= lake.manifest.state.kept_from)
    return frame.drop("place")


def _without_removed(spark: SparkSession, lake: Lake, mine: DataFrame, there: DataFrame) -> DataFrame:
    """The lake's rows but for those of messages that were taken out of the store since."""
    key = ["queue", "id"]
    missing = mine.select(key).distinct().join(there.select(key).distinct(), key, "left_anti")
    removed = [(row["queue"], row["id"]) for row in missing.limit(MOST_REMOVED).collect() if _is_removed(lake, *row)]
    if not removed:
        return mine
    return mine.join(F.broadcast(spark.createDataFrame(removed, "queue string, id string")), key, "left_anti")


def _is_removed(lake: Lake, queue: str, message_id: str) -> bool:
    try:
        lake.engine.find(queue, message_id)
    except NotFound:
        return True
    return False


def _name(window: Window) -> str:
    return f"window {window.first}" if window.first == window.last else f"windows {window.first} to {window.last}"


def _told(lake_sums: Sums, store_sums: Sums) -> str:
    if lake_sums.rows != store_sums.rows:
        return f"the lake has {lake_sums.rows:,} rows, the store {store_sums.rows:,}"
    return f"{lake_sums.rows:,} rows in both, but with other values"
