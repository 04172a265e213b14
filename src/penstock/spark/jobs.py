"""The jobs of the pipeline: each opens the store and Spark, does its work, and leaves a note of its run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.client.connecting import absolute_url, connect, redacted
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
from penstock.domain.names import shown
from penstock.domain.times import to_time
from penstock.spark.lake.archiving import Archived, archive
from penstock.spark.lake.compacting import compact, drop_old
from penstock.spark.lake.frames import read_table
from penstock.spark.lake.opening import GROUP, Lake, open_lake
from penstock.spark.lake.verifying import Verdict, verify
from penstock.spark.report.findings import Finding, findings
from penstock.spark.report.page import page
from penstock.spark.report.summary import summarise, width_for
from penstock.spark.session import open_session
from penstock.spark.tables import Tables, compute

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.engines.contract import Engine

Say = Callable[[str], None]


class Place(msgspec.Struct, frozen=True):
    """Where a job works: on which store and which lake, on which Spark."""

    url: str
    lake: str
    master: str | None = None
    conf: Mapping[str, str] = {}


class Upkeep(msgspec.Struct, frozen=True):
    """What the archive job does besides archiving."""

    keep_days: int | None = None
    accept_gap: bool = False
    group: str = GROUP


class Reported(msgspec.Struct, frozen=True):
    path: str
    findings: list[Finding]


class Job:
    """One run of a job, from the opening of the store and of Spark to the note that it leaves."""

    def __init__(self, name: str, place: Place, say: Say) -> None:
        self.name = name
        self.place = place
        self.say = say
        self.url = absolute_url(place.url)
        self.result: dict[str, Any] = {}

    @contextmanager
    def running(self) -> Iterator[tuple[Engine, SparkSession]]:
        with connect(self.url) as store:
            engine = store.engine
            engine.epoch()  # fails before Spark starts when the store cannot be read
            began_at, began = engine_time(engine), time.monotonic()
            self.say("Starting Spark")
            try:
                with open_session(f"pipeline {self.name}", self.place.master, self.place.conf) as spark:
                    yield engine, spark
            except Exception as error:
                note_run(engine, PipelineRun(self.name, began_at, time.monotonic() - began, False, {}, str(error)))
                raise
            note_run(engine, PipelineRun(self.name, began_at, time.monotonic() - began, True, self.result))


def run_archive(place: Place, upkeep: Upkeep, say: Say) -> Archived:
    check_keep_days(upkeep.keep_days)
    job = Job("archive", place, say)
    with job.running() as (engine, spark):
        done = _archive(job, engine, spark, upkeep)
        job.result = msgspec.to_builtins(done)
    return done


def run_verify(place: Place, say: Say) -> Verdict:
    job = Job("verify", place, say)
    with job.running() as (engine, spark):
        say("Comparing every row")
        with open_lake(spark, engine, place.lake) as lake:
            verdict = verify(spark, lake, job.url)
        job.result = msgspec.to_builtins(verdict)
    return verdict


def run_report(place: Place, out: str, say: Say) -> Reported:
    check_out(out)
    job = Job("report", place, say)
    with job.running() as (engine, spark):
        reported = _report(job, engine, spark, out)
        job.result = {"path": reported.path}
    return reported


def run_all(place: Place, out: str, upkeep: Upkeep, say: Say) -> tuple[Archived, Reported]:
    """Archive, tables and report, with one session."""
    check_keep_days(upkeep.keep_days)
    check_out(out)
    job = Job("run", place, say)
    with job.running() as (engine, spark):
        done = _archive(job, engine, spark, upkeep)
        reported = _report(job, engine, spark, out)
        job.result = {**msgspec.to_builtins(done), "report": reported.path}
    return done, reported


def check_keep_days(keep_days: int | None) -> None:
    if keep_days is not None and keep_days < 1:
        raise InvalidInput(f"the lake must keep at least 1 day, not {keep_days}")


def check_out(out: str) -> None:
    """Before any work is done: whether the report can be written there."""
    path = Path(out)
    if path.is_dir():
        raise InvalidInput(f"{shown(out)} is a directory: name a file for the report")
    if not path.parent.is_dir():
        raise InvalidInput(f"there is no directory {shown(str(path.parent))} for the report")


def _archive(job: Job, engine: Engine, spark: SparkSession, upkeep: Upkeep) -> Archived:
    lake = open_lake(spark, engine, job.place.lake, create=True, group=upkeep.group)
    job.say("Archiving what is new")
    done = archive(spark, lake, job.url, accept_gap=upkeep.accept_gap, say=lambda line: job.say(f"  {line}"))
    if upkeep.keep_days is not None:
        dropped = drop_old(lake, upkeep.keep_days)
        job.say(f"  dropped {dropped:,} old files")
    compacted = compact(spark, lake)
    if compacted.before:
        job.say(f"  {compacted.before:,} small files became {compacted.after:,}")
    _note_lake(engine, lake)
    return done


def _note_lake(engine: Engine, lake: Lake) -> None:
    files = lake.manifest.files()
    size = sum(entry.size for entry in files.values())
    windows = lake.manifest.state.windows
    note_lake(engine, lake.manifest.lake, LakeStatus(lake.folder.path, engine_time(engine), windows, len(files), size))


def _report(job: Job, engine: Engine, spark: SparkSession, out: str) -> Reported:
    with open_lake(spark, engine, job.place.lake) as lake:
        lake.finish()
        job.say("Computing tables")
        tables = _tables(job, spark, lake)
        job.say("Writing the report")
        made_at = engine_time(engine)
        summary = summarise(tables, redacted(job.place.url), made_at)
    path = Path(out).absolute()
    aside_file = path.with_name(f".{path.name}.new")
    aside_file.write_text(page(summary), encoding="utf-8")
    aside_file.replace(path)
    found = findings(summary)
    note_report(engine, ReportStatus(str(path), made_at, [one.sentence for one in found]))
    return Reported(out, found)


def _tables(job: Job, spark: SparkSession, lake: Lake) -> Tables:
    audit = read_table(spark, lake, "audit")
    aside, upto_at = f"{lake.staging()}-tables", lake.manifest.state.upto_at
    until = None if upto_at is None else to_time(upto_at)
    tables = compute(spark, audit, lake.folder, aside, width_for, lambda name: job.say(f"  {name}"), until)
    lake.folder.remove(aside)
    return tables
