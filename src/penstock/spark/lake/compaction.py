"""Compaction: joins small files, and removes old days."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from functools import partial, reduce
from typing import TYPE_CHECKING

import msgspec

from penstock.domain.timestamps import to_time
from penstock.spark.lake.columns import TIMES
from penstock.spark.lake.frames import day, placed, read_files, written_files
from penstock.spark.lake.manifest import Span, Window
from penstock.spark.lake.writer import WRITTEN, writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.engines.contract import Table
    from penstock.spark.lake.lake import Lake
    from penstock.spark.lake.manifest import FileEntry

# A directory with this many files below half the wanted size is compacted.
SMALL_FILES = 8
WANTED_BYTES = 128 << 20
# Dead letters are rewritten when they change.
DATED: tuple[Table, ...] = ("audit", "archive")
# No rows are added to a day this long after its end.
SETTLED = timedelta(hours=1)
# When there are more windows, all but the last half of this number are joined.
WINDOWS = 200


class Compacted(msgspec.Struct, frozen=True):
    before: int
    after: int


def compact(spark: SparkSession, lake: Lake, small_files: int = SMALL_FILES) -> Compacted:
    """Join small files of one table, day and queue. The rows stay the same; `verify` proves it.

    Replaced files are deleted at once, because readers of directories would find their rows twice. To avoid disturbing
    readers, only past days are compacted, and nothing while a reader of the manifest is active.
    """
    before = after = 0
    if lake.manifest.is_read():
        return Compacted(0, 0)
    first_open = f"{to_time(lake.engine.now()) - SETTLED:%Y-%m-%d}"
    for table in DATED:
        crowded = _crowded(lake.manifest.files(table), small_files, first_open)
        if not crowded:
            continue
        with lake.change("compact") as staging:
            paths = [path for files in crowded.values() for path in files]
            frame = read_files(spark, lake.folder, table, paths)
            write = partial(writer(lake.folder.under(staging)), table)
            files = written_files(_gathered(frame, table).mapInArrow(write, WRITTEN))
            adds = placed(files, lake.file_name(lake.manifest.state.windows), staging)
            lake.manifest.stage(adds=tuple(adds), removes=tuple(paths))
        before, after = before + len(paths), after + len(files)
    _join_windows(lake)
    return Compacted(before, after)


def _crowded(files: dict[str, FileEntry], small_files: int, first_open: str) -> dict[str, list[str]]:
    """Small files of past days, by directory, where there are many."""
    found: dict[str, list[str]] = defaultdict(list)
    for path, entry in files.items():
        if entry.size < WANTED_BYTES // 2 and day_of(path) < first_open:
            found[path.rpartition("/")[0]].append(path)
    return {folder: paths for folder, paths in found.items() if len(paths) >= small_files}


def _gathered(frame: DataFrame, table: Table) -> DataFrame:
    """One task for each queue and day, ordered by time, so that readers can skip row groups."""
    return frame.repartition("queue", day(table)).sortWithinPartitions("queue", TIMES[table])


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
    """Remove days older than `keep_days`, except dead letters. Returns the number of files. Nothing is removed while a
    reader of the manifest is active."""
    if lake.manifest.is_read():
        return 0
    today = to_time(lake.engine.now())
    first = f"{today - timedelta(days=keep_days):%Y-%m-%d}"
    old = [path for table in DATED for path in lake.manifest.files(table) if day_of(path) < first]
    if old:
        with lake.change("drop"):
            lake.manifest.stage(removes=tuple(old), kept_from=first)
    return len(old)


def day_of(path: str) -> str:
    return path.split("/")[1].removeprefix("day=")
