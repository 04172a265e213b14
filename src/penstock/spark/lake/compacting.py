"""Upkeep of the lake: many small files become few large ones, and old days go."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import reduce
from typing import TYPE_CHECKING

import msgspec
from pyspark.sql import functions as F

from penstock.domain.times import to_time
from penstock.spark.lake.frames import day, places, read_files, written_files
from penstock.spark.lake.manifest import Span, Window
from penstock.spark.lake.rows import TIMES
from penstock.spark.lake.writing import WRITTEN, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.manifest import FileEntry
    from penstock.spark.lake.opening import Lake

# A directory with so many files that are smaller than half the wanted size is worth the work.
SMALL_FILES = 8
WANTED_BYTES = 128 << 20
# Dead letters are written anew when they change.
DATED: tuple[Table, ...] = ("audit", "archive")
# So long after its end nothing more comes to a day.
SETTLED = timedelta(hours=1)
# Windows are joined when there are more; the last ones stay as they were.
WINDOWS = 200


class Compacted(msgspec.Struct, frozen=True):
    before: int
    after: int


def compact(spark: SparkSession, lake: Lake, small_files: int = SMALL_FILES) -> Compacted:
    """Join small files of one table, day and queue. The rows stay the same, which `verify` can prove.

    Files that are replaced go at once: who reads directories would find their rows twice otherwise. So that this seldom
    meets a reader it is done to days that are over, and not while somebody reads through the manifest.
    """
    before = after = 0
    if lake.manifest.is_read():
        return Compacted(0, 0)
    first_open = f"{to_time(lake.engine.now()) - SETTLED:%Y-%m-%d}"
    for table in DATED:
        crowded = _crowded(lake.manifest.files(table), small_files, first_open)
        if not crowded:
            continue
        with lake.changing("compact") as aside:
            paths = [path for files in crowded.values() for path in files]
            frame = read_files(spark, lake.folder, table, paths)
            queues = sorted(row["queue"] for row in frame.select("queue").distinct().collect())
            write = writer(table, lake.folder.under(aside))
            files = written_files(_gathered(frame, table, queues).mapInArrow(write, WRITTEN))
            adds = places(files, table, queues, lake.file_name(lake.manifest.state.windows), aside)
            lake.manifest.stage(adds=tuple(adds), removes=tuple(paths))
        before, after = before + len(paths), after + len(files)
    _join_windows(lake)
    return Compacted(before, after)


def _crowded(files: dict[str, FileEntry], small_files: int, first_open: str) -> dict[str, list[str]]:
    """Directories of days that are over with many small files, and these files."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, entry in files.items():
        if entry.size < WANTED_BYTES // 2 and day_of(path) < first_open:
            found[path.rpartition("/")[0]].append(path)
    return {folder: paths for folder, paths in found.items() if len(paths) >= small_files}


def _gathered(frame: DataFrame, table: Table, queues: list[str]) -> DataFrame:
    """One task for each queue and day, in the order of time, so that readers can leave out what they do not want."""
    numbers = F.create_map(*(F.lit(word) for place, queue in enumerate(queues) for word in (queue, place)))
    return (
        frame.withColumn("place", numbers[F.col("queue")])
        .repartition("place", day(table))
        .sortWithinPartitions("place", TIMES[table])
    )


def _join_windows(lake: Lake) -> None:
    windows = lake.manifest.windows()
    if len(windows) <= WINDOWS:
        return
    old = windows[: len(windows) - WINDOWS // 2]
    lake.manifest.join_windows(reduce(_joined, old), old)


def _joined(one: Window, next_one: Window) -> Window:
    spans = dict(one.spans)
    for queue, span in next_one.spans.items():
        spans[queue] = Span(spans[queue].start if queue in spans else span.start, span.end)
    rows: dict[str, int] = {table: one.rows.get(table, 0) + next_one.rows.get(table, 0) for table in DATED}
    return Window(one.first, next_one.last, next_one.at, spans, rows)


def drop_old(lake: Lake, keep_days: int) -> int:
    """Remove days that are older; how many files that were. Dead letters are what the store has: they stay. While
    somebody reads through the manifest nothing goes."""
    if lake.manifest.is_read():
        return 0
    today = to_time(lake.engine.now())
    first = f"{today - timedelta(days=keep_days):%Y-%m-%d}"
    old = [path for table in DATED for path in lake.manifest.files(table) if day_of(path) < first]
    if old:
        with lake.changing("drop"):
            lake.manifest.stage(removes=tuple(old), kept_from=first)
    return len(old)


def day_of(path: str) -> str:
    return path.split("/")[1].removeprefix("day=")
