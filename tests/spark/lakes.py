"""Lakes under test: archive runs, comparison with the store, and crashes at any step."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from penstock import Store
from penstock.spark.lake import archive as archive_module
from penstock.spark.lake.archive import ArchiveRun, archive
from penstock.spark.lake.folders import Folder
from penstock.spark.lake.frames import read_table
from penstock.spark.lake.lake import Lake, open_lake
from penstock.spark.lake.manifest import Manifest
from tests.spark.stores import lake_rows, store_rows

# Crash points, in order.
POINTS = ("planned", "written", "staged", "moved", "published", "removed", "ended")


class Crash(BaseException):
    """Not an Exception, so that no handler catches it."""


def run_archive(spark: SparkSession, store: Store, url: str, path: Path, **options: Any) -> ArchiveRun:
    return archive(spark, open_lake(spark, store.engine, str(path), create=True), url, **options)


def crash_at(point: str, crash: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
    """Make the next run crash at a point."""

    def after(owner: Any, name: str, times: int = 1) -> None:
        real = getattr(owner, name)
        calls = 0

        def crashing(*arguments: Any, **named: Any) -> Any:
            nonlocal calls
            result = real(*arguments, **named)
            calls += 1
            if calls == times:
                crash()
            return result

        patch.setattr(owner, name, crashing)

    match point:
        case "planned":
            after(Manifest, "begin")
        case "written":
            after(archive_module, "written_files")
        case "staged":
            after(Manifest, "stage")
        case "moved":
            after(Folder, "move", times=2)
        case "published":
            after(Manifest, "publish")
        case "removed":
            after(Folder, "remove")
        case "ended":
            after(Manifest, "end")


def gone_process() -> int:
    """The id of a process that has ended."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return ended.pid


def assert_same(spark: SparkSession, store: Store, lake: Lake) -> None:
    """The lake equals the store, row for row; its audit also has one send for every message."""
    audit = read_table(spark, lake, "audit")
    assert lake_rows(read_table(spark, lake, "archive"), "archive") == store_rows(store, "archive")
    assert lake_rows(audit.where("event != 'send'"), "audit") == store_rows(store, "audit")
    assert lake_rows(read_table(spark, lake, "dead_letters"), "dead_letters") == store_rows(store, "dead_letters")
    sends = audit.where("event = 'send'")
    in_log = store_rows(store, "messages").total()
    ended_held = read_table(spark, lake, "archive").where(F.col("group").isNull()).count()
    assert sends.count() == sends.select("queue", "id").distinct().count() == in_log + ended_held
    assert_no_strays(lake)


def assert_no_strays(lake: Lake) -> None:
    """The directory has exactly the files of the manifest."""
    known = set(lake.manifest.files())
    there = {file.path for table in ("audit", "archive", "dead_letters") for file in lake.folder.list(table, "")}
    assert there == known
    assert not lake.folder.exists("_staging")
