"""The jobs of the pipeline. Each opens the store and Spark, does its work, and records its run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.connection import absolute_url, connect, redacted
from penstock.client.pipeline import (
    LakeStatus,
    PipelineRun,
    ReportStatus,
    engine_time,
    note_lake,
    note_report,
    note_run,
)
from penstock.domain.errors import InvalidInput
from penstock.domain.validation import shown
from penstock.spark.lake.archive import ArchiveRun, Progress, archive
from penstock.spark.lake.columns import LAKE_TABLES
from penstock.spark.lake.compaction import compact, drop_old
from penstock.spark.lake.lake import GROUP, Lake, open_lake
from penstock.spark.lake.table_update import update_tables
from penstock.spark.lake.verification import Verification, verify
from penstock.spark.report.findings import Finding, findings
from penstock.spark.report.page import page
from penstock.spark.report.summary import summarise, width_for
from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engines.contract import Engine


class JobTarget(msgspec.Struct, frozen=True):
    """The store, lake and Spark master of a job."""

    url: str
    lake: str
    master: str | None = None
    conf: Mapping[str, str] = {}


class Upkeep(msgspec.Struct, frozen=True):
    """Settings of the archive job."""

    keep_days: int | None = None
    accept_gap: bool = False
    group: str = GROUP
    compact: bool = True


class Reported(msgspec.Struct, frozen=True):
    path: str
    findings: list[Finding]


class Job:
    """One run of a job."""

    def __init__(self, name: str, target: JobTarget, progress: Progress) -> None:
        self.name = name
        self.target = target
        self.progress = progress
        self.url = absolute_url(target.url)
        self.result: dict[str, Any] = {}

    @contextmanager
    def run(self) -> Iterator[tuple[Engine, SparkSession]]:
        with connect(self.url) as store:
            engine = store.engine
            engine.epoch()  # fails before Spark starts when the store cannot be read
            began_at, began = engine_time(engine), time.monotonic()
            self.progress("Starting Spark")
            try:
                with open_session(f"pipeline {self.name}", self.target.master, self.target.conf) as spark:
                    yield engine, spark
            except Exception as error:
                note_run(engine, PipelineRun(self.name, began_at, time.monotonic() - began, False, {}, str(error)))
                raise
            note_run(engine, PipelineRun(self.name, began_at, time.monotonic() - began, True, self.result))


def run_archive(target: JobTarget, upkeep: Upkeep, progress: Progress) -> ArchiveRun:
    check_keep_days(upkeep.keep_days)
    job = Job("archive", target, progress)
    with job.run() as (engine, spark):
        done = _archive(job, engine, spark, upkeep)
        job.result = msgspec.to_builtins(done)
    return done


def run_verify(target: JobTarget, progress: Progress) -> Verification:
    job = Job("verify", target, progress)
    with job.run() as (engine, spark):
        progress("Comparing every row")
        with open_lake(spark, engine, target.lake) as lake:
            verdict = verify(spark, lake, job.url)
        job.result = msgspec.to_builtins(verdict)
    return verdict


def run_report(target: JobTarget, out: str, progress: Progress) -> Reported:
    check_out(out)
    job = Job("report", target, progress)
    with job.run() as (engine, spark):
        reported = _report(job, engine, spark, out)
        job.result = {"path": reported.path}
    return reported


def run_all(target: JobTarget, out: str, upkeep: Upkeep, progress: Progress) -> tuple[ArchiveRun, Reported]:
    """Archive, tables and report, with one session."""
    check_keep_days(upkeep.keep_days)
    check_out(out)
    job = Job("run", target, progress)
    with job.run() as (engine, spark):
        done = _archive(job, engine, spark, upkeep)
        reported = _report(job, engine, spark, out)
        job.result = {**msgspec.to_builtins(done), "report": reported.path}
    return done, reported


def check_keep_days(keep_days: int | None) -> None:
    if keep_days is not None and keep_days < 1:
        raise InvalidInput(f"the lake must keep at least 1 day, not {keep_days}")


def check_out(out: str) -> None:
    """Check before any work whether the report can be written there."""
    path = Path(out)
    if path.is_dir():
        raise InvalidInput(f"{shown(out)} is a directory: name a file for the report")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no directory {shown(str(path.parent))} for the report")


def _archive(job: Job, engine: Engine, spark: SparkSession, upkeep: Upkeep) -> ArchiveRun:
    lake = open_lake(spark, engine, job.target.lake, create=True, group=upkeep.group)
    job.progress("Archiving what is new")
    done = archive(spark, lake, job.url, accept_gap=upkeep.accept_gap, progress=lambda line: job.progress(f"  {line}"))
    if upkeep.keep_days is not None:
        dropped = drop_old(lake, upkeep.keep_days)
        job.progress(f"  dropped {dropped:,} old files")
    if upkeep.compact:
        compacted = compact(spark, lake)
        if compacted.before:
            job.progress(f"  {compacted.before:,} small files became {compacted.after:,}")
    _note_lake(engine, lake)
    return done


def _note_lake(engine: Engine, lake: Lake) -> None:
    sizes = [entry.size for table in LAKE_TABLES for entry in lake.manifest.files(table).values()]
    windows, now = lake.manifest.state.windows, engine_time(engine)
    note_lake(engine, lake.manifest.lake, LakeStatus(lake.folder.path, now, windows, len(sizes), sum(sizes)))


def _report(job: Job, engine: Engine, spark: SparkSession, out: str) -> Reported:
    with open_lake(spark, engine, job.target.lake) as lake:
        job.progress("Computing tables")
        tables = update_tables(spark, lake, width_for, lambda name: job.progress(f"  {name}"))
        job.progress("Writing the report")
        made_at = engine_time(engine)
        summary = summarise(tables, redacted(job.target.url), made_at)
    path = Path(out).absolute()
    new_file = path.with_name(f".{path.name}.new")
    new_file.write_text(page(summary), encoding="utf-8")
    new_file.replace(path)
    found = findings(summary)
    note_report(engine, ReportStatus(str(path), made_at, [one.sentence for one in found]))
    return Reported(out, found)
