"""After a crash at any point, the next run makes the lake equal to the store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import penstock
from penstock.spark.lake.archive import archive
from penstock.spark.lake.lake import open_lake
from penstock.spark.lake.verification import verify
from tests.architecture.sources import ROOT
from tests.spark.conftest import QUICK
from tests.spark.lakes import POINTS, Crash, assert_same, crash_at, gone_process, run_archive
from tests.spark.stores import fill

KILLED_AT = ("written", "moved")
# Crash points at which files of an earlier run are replaced.
REPLACING = ("moved", "published", "removed")


@pytest.mark.parametrize("point", POINTS)
def test_interrupted_archive_run_is_completed_or_undone_by_the_next(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    url, path = f"sqlite:///{tmp_path}/store.db", tmp_path / "lake"
    with penstock.connect(url) as store:
        fill(store, 14)
        if point in REPLACING:
            run_archive(spark, store, url, path)
        fill(store, 21, "mail")
        lake = open_lake(spark, store.engine, str(path), create=True)
        lake.manifest.process = gone_process()

        def crash() -> None:
            raise Crash

        with monkeypatch.context() as patch:
            crash_at(point, crash, patch)
            with pytest.raises(Crash):
                archive(spark, lake, url)
        fill(store, 7)
        run_archive(spark, store, url, path)
        assert_same(spark, store, open_lake(spark, store.engine, str(path)))


@pytest.mark.slow
@pytest.mark.parametrize("point", KILLED_AT)
def test_archive_of_a_killed_driver_is_completed_or_undone_by_the_next(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    url, path = f"sqlite:///{tmp_path}/store.db", tmp_path / "lake"
    with penstock.connect(url) as store:
        fill(store, 70)
        fill(store, 35, "mail")
        killed = subprocess.run(
            [sys.executable, "-m", "tests.spark.test_lake_crashes", url, str(path), point],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
            capture_output=True,
            text=True,
            timeout=500,
            check=False,
        )
        assert killed.returncode == -signal.SIGKILL, killed.stderr
        run_archive(spark, store, url, path)
        lake = open_lake(spark, store.engine, str(path))
        assert_same(spark, store, lake)
        assert verify(spark, lake, url).ok


def archive_and_die(url: str, path: str, point: str) -> None:
    from penstock.spark.session import open_session

    crash_at(point, lambda: os.kill(os.getpid(), signal.SIGKILL), pytest.MonkeyPatch())
    with open_session("killed", "local[2]", QUICK) as spark, penstock.connect(url) as store:
        run_archive(spark, store, url, Path(path))


if __name__ == "__main__":
    archive_and_die(*sys.argv[1:])
