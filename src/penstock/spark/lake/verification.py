"""Verify: compares the lake with its manifest and with the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from pyspark.sql import functions as F

from penstock.domain.errors import NotFound, RangeTrimmed
from penstock.spark.lake import rows
from penstock.spark.lake.columns import LAKE_TABLES
from penstock.spark.lake.frames import day, read_table, sums_of
from penstock.spark.lake.samples import unlike
from penstock.spark.lake.writer import digest_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.lake import Lake
    from penstock.spark.lake.manifest import Window

COMPARED: tuple[Table, ...] = ("audit", "archive")
# At most this many missing messages are looked up in the store.
MOST_REMOVED = 10_000


class Sums(NamedTuple):
    """The number of rows and two sums of their hashes: equal for equal sets of rows."""

    rows: int = 0
    mixed: int = 0
    added: int = 0


class Comparison(msgspec.Struct, frozen=True):
    """One table: rows in the lake, rows of the store compared with them, and the differences."""

    table: str
    rows: int
    compared: int
    differences: list[str]


class Verification(msgspec.Struct, frozen=True):
    ok: bool
    comparisons: list[Comparison]
    missing_files: list[str]
    stray_files: list[str]


def verify(spark: SparkSession, lake: Lake, url: str) -> Verification:
    """Compare the lake with its manifest and with the store, by row counts and hashes of all values.

    Every file must have the digest that the manifest recorded, which also covers rows that the store has trimmed since.
    Rows of the store are converted by the code that wrote the lake, so a sample of messages is also compared with the
    audit trail that the store shows to users.
    """
    lake.finish()
    missing, stray = _files(spark, lake)
    comparisons = []
    if not missing:
        comparisons = [_compare(spark, lake, url, table) for table in COMPARED]
    ok = not missing and not stray and not any(one.differences for one in comparisons)
    return Verification(ok, comparisons, missing, stray)


def _files(spark: SparkSession, lake: Lake) -> tuple[list[str], list[str]]:
    """Files that are missing or changed, and files that are not in the manifest."""
    known = {path: entry for table in LAKE_TABLES for path, entry in lake.manifest.files(table).items()}
    there = {file.path: file.size for table in LAKE_TABLES for file in lake.folder.list(table, "")}
    whole = [path for path, entry in known.items() if there.get(path) == entry.size]
    digests = _digests(spark, lake, whole)
    missing = sorted(path for path, entry in known.items() if digests.get(path) != entry.digest)
    return missing, sorted(path for path in there if path not in known)


def _digests(spark: SparkSession, lake: Lake, paths: list[str]) -> dict[str, str]:
    """The digests of the files that exist."""
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
    parts = {window.first: _parts(spark, lake, table, window) for window in windows}
    readable = [part for found in parts.values() if found is not None for part in found]
    there = rows.frame(spark, url, table, readable)
    if kept_from is not None:
        there = there.where(day(table) >= kept_from)
    theirs = _by_window(there, table) if readable else {}
    differences: list[str] = []
    compared = 0
    for window in windows:
        lake_sums, store_sums = mine.get(window.first, Sums()), theirs.get(window.first, Sums())
        noted = window.rows.get(table, 0)
        if kept_from is None and lake_sums.rows != noted:
            differences.append(f"{_name(window)}: the lake has {lake_sums.rows:,} rows, {noted:,} came")
        if parts[window.first] is None:
            continue
        if lake_sums.rows > store_sums.rows:
            is_of_window = F.col("window") == window.first
            left = _without_removed(spark, lake, frame.where(is_of_window), there.where(is_of_window))
            lake_sums = _by_window(left, table).get(window.first, Sums())
        compared += store_sums.rows
        if lake_sums != store_sums:
            differences.append(f"{_name(window)}: {_difference(lake_sums, store_sums)}")
    if table == "audit":
        differences += unlike(spark, lake, [window for window in windows if parts[window.first] is not None])
    return Comparison(table, sum(one.rows for one in mine.values()), compared, differences)


def _numbered(frame: DataFrame, windows: list[Window]) -> DataFrame:
    """Assign the rows of joined windows to the first of them."""
    first = F.col("window")
    for window in windows:
        if window.last != window.first:
            first = F.when(F.col("window").between(window.first, window.last), F.lit(window.first)).otherwise(first)
    return frame.withColumn("window", first)


def _by_window(frame: DataFrame, table: Table) -> dict[int, Sums]:
    found = frame.groupBy("window").agg(*sums_of(table)).collect()
    return {row["window"]: Sums(row["rows"], row["mixed"] or 0, row["added"] or 0) for row in found}


def _parts(spark: SparkSession, lake: Lake, table: Table, window: Window) -> list[rows.LakePart] | None:
    """The rows of a window in the store; None when some were trimmed."""
    try:
        return [
            rows.LakePart(table, window.first, part)
            for queue, span in window.spans.items()
            for part in rows.split_table(spark, lake.engine, table, queue, span)
        ]
    except RangeTrimmed:
        return None


def _without_removed(spark: SparkSession, lake: Lake, mine: DataFrame, there: DataFrame) -> DataFrame:
    """The lake's rows without those of messages that were removed from the store since."""
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


def _difference(lake_sums: Sums, store_sums: Sums) -> str:
    if lake_sums.rows != store_sums.rows:
        return f"the lake has {lake_sums.rows:,} rows, the store {store_sums.rows:,}"
    return f"{lake_sums.rows:,} rows in both, but with other values"
